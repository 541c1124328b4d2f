#include "weft/train/run_data.h"

#include <stdio.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/data/row_order.h"
#include "weft/data/taught_samples.h"
#include "weft/data/teacher_logits.h"
#include "weft/pipeline/file_texts.h"
#include "weft/pipeline/provenance.h"
#include "weft/pipeline/row_encoder.h"
#include "weft/plan/run_plan.h"
#include "weft/records/clock.h"
#include "weft/train/data_files.h"
#include "weft/train/run_reference.h"
#include "weft/train/run_tokenizer.h"

namespace weft {
namespace {

// The file of an objective over rows, and the fields that it reads.
IdRows::Spec rows_of(const Recipe& r) {
  if (data_key_of(r.train.objective) == "data.pairs")
    return {.file = r.data.pairs, .completions = {"chosen", "rejected"}, .seq_length = r.train.seq_length};
  if (r.train.objective == ObjectiveKind::kto)
    return {.file = r.data.examples,
            .completions = {"completion"},
            .number = "label",
            .number_is_flag = true,
            .other_number = "kto_tag",
            .seq_length = r.train.seq_length};
  if (r.train.objective == ObjectiveKind::ppo)
    return {.file = r.data.rollouts,
            .completions = {"completion"},
            .number = "reward",
            .token_numbers = {{"old_logps"}, {"ref_logps"}, {.name = "old_values", .is_logp = false}},
            .seq_length = r.train.seq_length};
  return {
      .file = r.data.rollouts,
      .completions = {"completion"},
      .number = "reward",
      .token_numbers = {{"old_logps"}},
      .seq_length = r.train.seq_length,
      .most_tokens = r.objective.normalisation == LossNormalisation::constant ? r.objective.max_completion_length : 0};
}

RowEncoder row_encoder_of(const Recipe& r, const IdRows::Spec& rows) {
  const std::string name = text_tokenizer_of(r), of_model = find_tokenizer(r.model.path).string();
  const std::string path = name != "auto" ? name : of_model.empty() ? "byte" : of_model;
  return RowEncoder(open_tokenizer(name, r.model.path, rows.vocab_size),
                    {.tokenizer = path, .chat_template = r.data.chat_template, .completions = rows.completions});
}

// Rows whose completions are alike teach nothing.
std::string warning_of(const IdRows& rows) {
  int64_t alike = 0, first = 0;
  for (int64_t row = rows.size() - 1; row >= 0 && rows.num_completions() > 1; --row) {
    const auto a = rows.completion(row, 0), b = rows.completion(row, 1);
    if (std::equal(a.begin(), a.end(), b.begin(), b.end())) ++alike, first = row;
  }
  if (alike == 0) return "";
  return fmt::format(
      "{}: in {} of {} rows, the first of them {}, the chosen completion is the rejected one: they teach "
      "nothing; leave them out",
      rows.file().string(), alike, rows.size(), rows.place_of(first));
}

// Opens rows; the encoder is made for the first of them that are texts.
IdRows open_rows(const Recipe& r, IdRows::Spec spec, std::optional<RowEncoder>& encoder) {
  spec.files = more_row_files();
  if (data_key_of(r.train.objective) != "data.rollouts")  // of ids alone: with numbers of each token
    spec.files.encode = [&](const JsonlRow& row) {
      if (!encoder) encoder.emplace(row_encoder_of(r, spec));
      return encoder->encode(row);
    };
  return IdRows(spec);
}

RowOrder::Spec order_of(const Recipe& r) {
  const bool rollouts = data_key_of(r.train.objective) == "data.rollouts";
  return {.rows_of_step = r.train.global_batch_size,
          .seq_length = r.train.seq_length,
          .steps_of_batch = rollouts ? r.objective.inner_updates : 1,
          .rows_of_group = r.train.objective == ObjectiveKind::grpo ? r.objective.group_size : 1,
          .scores_ends = r.train.objective == ObjectiveKind::reward,
          .mixes = r.train.objective == ObjectiveKind::kto,
          .seed = uint64_t(r.train.seed),
          .shuffle = r.data.shuffle};
}

}  // namespace

RunData open_row_data(const Recipe& r, int64_t vocab_size, const std::vector<int64_t>& begun) {
  IdRows::Spec spec = rows_of(r);
  spec.vocab_size = vocab_size;
  std::optional<RowEncoder> encoder;  // rows of ids need no tokenizer
  IdRows rows = open_rows(r, spec, encoder);
  RunData data;
  data.warning = warning_of(rows);
  data.sources.push_back({.path = rows.file().string(), .contents = rows.fingerprint(), .dataset = "", .version = ""});
  RowOrder::Spec train = order_of(r);
  train.begun = begun.empty() ? 0 : begun[0];
  data.train = std::make_shared<RowOrder>(std::move(rows), train);
  if (!r.data.valid.empty()) {
    spec.file = r.data.valid[0];
    RowOrder::Spec order = order_of(r);
    order.shuffle = false;
    data.valid_rows = std::make_shared<RowOrder>(open_rows(r, spec, encoder), order);
  }
  if (!encoder && !r.data.chat_template.empty())
    throw ConfigError(fmt::format("data.chat_template = {} has no effect: {} has rows of token ids; leave it out",
                                  in_quotes(r.data.chat_template), rows_of(r).file.string()));
  if (encoder) data.row_templates = encoder->chat_templates();
  return data;
}

RunData judge_row_data(const Recipe& r) {
  if (reads_tokens(r.train.objective)) return {};
  return open_row_data(r, prepare_run(r, 0).model.vocab_size);
}

std::filesystem::path token_cache_of(const Recipe& r) { return std::filesystem::path(r.run.dir) / "tokens"; }

DataSpec data_spec_of(const Recipe& r, int64_t vocab_size) {
  DataSpec spec;
  DataFiles files = training_files_of(r);
  spec.paths = std::move(files.paths);
  spec.weights = std::move(files.weights);
  spec.files_of_source = std::move(files.files_of_source);
  spec.dtype = name_of(r.data.dtype);
  spec.loss_mask = r.data.loss_mask;
  spec.packing = r.data.packing;
  spec.documents_apart = r.data.attn_mask_type == AttentionMask::block_causal;
  spec.text_key = r.data.text_key;
  spec.more = more_document_files();
  spec.tokenizer = text_tokenizer_of(r);
  spec.model_folder = r.model.path;
  spec.cache_dir = token_cache_of(r);
  spec.vocab_size = vocab_size;
  spec.seq_length = r.train.seq_length;
  spec.seed = uint64_t(r.train.seed);
  spec.shuffle = r.data.shuffle;
  spec.valid_fraction = r.data.valid_fraction;
  return spec;
}

void require_run_data(const Recipe& r) {
  if (!reads_tokens(r.train.objective)) {
    require_sources({rows_of(r).file.string()});
    require_sources(r.data.valid);
    return require_reference_folders(r);
  }
  const DataFiles train = training_files_of(r);
  if (!r.data.loss_mask.empty() && train.paths != r.data.train)
    throw ConfigError(fmt::format(
        "data.loss_mask belongs to one token file, but data.train = {} is a dataset, whose files have their "
        "own masks; leave data.loss_mask out",
        in_quotes(r.data.train.front())));
  require_sources(train.paths);
  require_sources(validation_files_of(r.data.valid).paths);
  if (!r.data.loss_mask.empty()) require_sources({r.data.loss_mask});
}

namespace {

// The samples with what objective.teacher_logits has of them. Whether that fits the model was judged before
// (read_stored_top).
std::shared_ptr<const TrainingSamples> with_teacher_logits(const Recipe& r,
                                                           std::shared_ptr<const SampleOrder> samples) {
  const auto logits = std::make_shared<const TeacherLogits>(r.objective.teacher_logits);
  const TeacherLogitsSpec& spec = logits->spec();
  if (spec.samples != samples->samples_fingerprint() || spec.num_samples != samples->samples_per_epoch())
    throw ConfigError(fmt::format(
        "objective.teacher_logits = {} cannot run: it was made of other tokens than data.train has now, {} samples of "
        "them, in place of {}, or of documents that attend to others; the nearest that works: the same files, "
        "data.packing, data.attn_mask_type and data.valid_fraction, or a file made for this recipe: `weft "
        "teacher-logits`",
        in_quotes(r.objective.teacher_logits), spec.num_samples, samples->samples_per_epoch()));
  const auto read_top = [samples, logits](int64_t sample, const TopRows& to) {
    logits->read(samples->number_of(sample), to);
  };
  return std::make_shared<TaughtSamples>(samples, read_top, fmt::format("{} top={}", spec.teacher, spec.top));
}

}  // namespace

RunData open_run_data(const Recipe& r, const ModelSpec& model, const TokenizeProgress& progress,
                      const std::vector<int64_t>& begun) {
  if (!reads_tokens(r.train.objective)) return open_row_data(r, model.vocab_size, begun);
  DataSpec spec = data_spec_of(r, model.vocab_size);
  spec.progress = progress;
  spec.begun = begun;
  Datasets datasets;
  require_vocabulary(dataset_tokenizers(spec.paths, datasets), model.vocab_size);
  RunData data;
  std::shared_ptr<SampleOrder> train = open_sample_order(spec);
  for (size_t i = 0; i < spec.paths.size(); ++i) {
    const auto dataset = datasets.find(spec.paths[i]);
    data.sources.push_back({.path = spec.paths[i],
                            .contents = train->contents_of(i),
                            .dataset = dataset ? dataset->folder.string() : "",
                            .version = dataset ? dataset->version : ""});
  }
  data.train = train;
  if (!r.objective.teacher_logits.empty()) data.train = with_teacher_logits(r, train);
  if (r.data.valid.empty() && r.data.valid_fraction == 0) return data;
  spec.part = DataSpec::Part::valid;
  if (!r.data.valid.empty()) {
    DataFiles files = validation_files_of(r.data.valid);
    spec.paths = std::move(files.paths);
    spec.files_of_source = std::move(files.files_of_source);
    spec.weights.clear();
    spec.begun.clear();
    spec.loss_mask.clear();
    spec.valid_fraction = 0;
    require_vocabulary(dataset_tokenizers(spec.paths, datasets), model.vocab_size);
    for (const std::string& path : spec.paths) datasets.find(path);
  }
  data.valid = open_eval_windows(spec);
  return data;
}

RunData open_rank_data(const Recipe& recipe, const ModelSpec& model, Communicator& world, int terminal_fd,
                       const std::vector<int64_t>& begun) {
  const bool leads = world.rank() == 0;
  if (!leads) barrier(world);
  double told = now_s();
  const auto tell = [&](std::string_view path, double done) {
    constexpr double kEvery = 2;  // seconds
    if (now_s() - told < kEvery) return;
    told = now_s();
    ::dprintf(terminal_fd, "tokenizing %.*s: %.0f %%\n", int(path.size()), path.data(), 100 * done);
  };
  RunData data = open_run_data(recipe, model, tell, begun);
  if (leads) barrier(world);
  return data;
}

nlohmann::json to_json(const std::vector<RunSource>& sources) {
  nlohmann::json list = nlohmann::json::array();
  for (const RunSource& s : sources) {
    list.push_back({{"path", s.path}, {"contents", s.contents}});
    if (!s.dataset.empty()) list.back().update({{"dataset", s.dataset}, {"version", s.version}});
  }
  return list;
}

std::vector<RunSource> run_sources_of(const nlohmann::json& list, const std::string& where) {
  if (!list.is_array()) throw FileError(where + ": sources: expected a list");
  std::vector<RunSource> sources;
  for (const auto& one : list) {
    const JsonFields s(one, where, "sources.");
    sources.push_back({s.string("path"), s.string("contents"), s.string("dataset", ""), s.string("version", "")});
  }
  return sources;
}

}  // namespace weft
