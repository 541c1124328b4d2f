// weft data why: what is behind a trained sample.
#include "weft/apps/data_why.h"

#include <algorithm>
#include <iostream>

#include "weft/apps/commands.h"
#include "weft/apps/report.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/models/hf_config.h"
#include "weft/pipeline/provenance.h"
#include "weft/recipe/recipe.h"
#include "weft/records/metrics_log.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/run_data.h"
#include "weft/train/run_phases.h"
#include "weft/train/run_tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

Recipe recipe_of(const fs::path& run) {
  const fs::path file = run / "recipe.toml";
  if (!fs::exists(file)) throw FileError(fmt::format("{}: no run folder: there is no recipe.toml", run.string()));
  Recipe recipe = parse_recipe_file(file.string(), {});
  if (!reads_tokens(recipe.train.objective))
    throw ConfigError(
        fmt::format("{}: is a run with train.objective = \"{}\", whose rows come from no pipeline; its file is "
                    "named by {}",
                    run.string(), recipe.train.objective, data_key_of(recipe.train.objective)));
  return recipe;
}

// Checks that samples lie where they were, and that the file asked about, the only one read, is the run's. Returns the
// version of its dataset.
std::string check_unchanged(const fs::path& run, const SampleOrder& order, size_t source) {
  const fs::path file = run / "data.json";
  if (!fs::exists(file)) return "";  // of a weft that wrote none
  const nlohmann::json json = read_json_file(file);
  const JsonFields fields(json, file.string());
  const auto* train = fields.find("train");
  if (train == nullptr) fields.fail("train", "a list");
  const std::vector<RunSource> then = run_sources_of(*train, file.string());
  if (then.size() != order.num_sources() || then[source].contents != order.source(source).contents())
    throw FileError(fmt::format("{}: has changed since the run began, so it no longer tells what was trained on",
                                then.size() == order.num_sources() ? then[source].path : file.string()));
  if (fields.has("order") && fields.string("order") != order.order_fingerprint())
    throw FileError(
        fmt::format("{}: the samples of the training files, or their weights, are not those with which the "
                    "run began, so it no longer tells what was trained on",
                    file.string()));
  return then[source].version;
}

// A segment of the sample: tokens of one document.
struct Part {
  Packing::Segment segment;
  int64_t document = 0, first = 0, tokens = 0;  // in the file; the segment's first token in it; all of them
};
std::vector<Part> parts_of(const OpenSource& source, int64_t sample) {
  std::vector<Part> parts;
  for (const Packing::Segment& p : source.packing->documents_in(sample)) {
    Part part{.segment = p};
    const bool told = source.tokens->num_documents() > 0;
    part.document = source.packing->document_of(p.begin);
    const int64_t begin = told ? source.tokens->document_begin(part.document) : 0;
    part.first = p.begin - begin;
    part.tokens = (told ? source.tokens->document_begin(part.document + 1) : source.tokens->size()) - begin;
    parts.push_back(part);
  }
  return parts;
}

Report origin_of(const Origin& o) { return {{"file", o.file}, {"row", o.row}, {"begin", o.begin}, {"end", o.end}}; }

Report story_of(const DocumentStory& story) {
  Report r{{"id", story.id.text()}};
  if (story.read) r["source"] = story.read->source, r["from"] = origin_of(story.read->origin);
  if (story.read && !story.read->url.empty()) r["url"] = story.read->url;
  r["passed"] = Report::array();
  for (const StagePassed& stage : story.passed) {
    Report one{{"stage", stage.stage}};
    if (!stage.rules.empty()) one["rules"] = stage.rules;
    one["changed"] = stage.changed ? Report(*stage.changed) : Report();
    r["passed"].push_back(one);
  }
  r["duplicates"] = Report::array();
  for (const MergedDuplicate& d : story.duplicates) {
    Report one{{"id", d.id.text()}, {"by", d.by}};
    if (d.jaccard) one["jaccard"] = *d.jaccard;
    if (d.origin) one["from"] = origin_of(*d.origin);
    r["duplicates"].push_back(one);
  }
  if (!story.gone.empty()) r["gone"] = story.gone;
  return r;
}

// The text of the tokens; null where the tokenizer cannot be had, or is not the one of the dataset any more.
class Texts {
 public:
  Texts(const std::optional<Provenance>& dataset, const Recipe& recipe, const fs::path& run, int64_t vocab_size) {
    if (dataset) {
      take_that_of(*dataset, run);
      return;
    }
    try {
      tokenizer_ = open_tokenizer(text_tokenizer_of(recipe), recipe.model.path, vocab_size);
    } catch (const Error& e) { why_ = e.what(); }
  }
  Report of(std::span<const int32_t> ids) const {
    return tokenizer_ ? Report(tokenizer_->decode(ids, Tokenizer::Specials::kShown)) : Report();
  }
  const std::string& why_not() const { return why_; }

 private:
  // Where it was, or as the run keeps it.
  void take_that_of(const Provenance& dataset, const fs::path& run) {
    for (const fs::path& path : {fs::path(dataset.tokenizer()), kept_tokenizer(run)}) {
      if (path.empty()) continue;
      try {
        auto found = read_tokenizer(path);
        if (found->fingerprint() == dataset.fingerprint()) {
          tokenizer_ = std::move(found);
          why_.clear();
          return;
        }
        why_ = path.string() + ": the tokenizer has changed since the dataset was made";
      } catch (const Error& e) { why_ = e.what(); }
    }
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::string why_;
};

// The last step that the run has trained: by its metrics and its newest checkpoint.
int64_t last_step_of(const fs::path& run) {
  int64_t last = 0;
  if (fs::exists(run / "metrics.jsonl"))
    for (const StepRecord& record : read_metrics(run / "metrics.jsonl").steps) last = std::max(last, record.step);
  const auto checkpoint = newest_checkpoint(run);
  return checkpoint ? std::max(last, step_of(*checkpoint)) : last;
}

// The batch that a step has read, from 0: another one than its number where the run has gone past some
// (train.on_spike).
int64_t batch_of(const fs::path& run, int64_t step) {
  if (fs::exists(run / "metrics.jsonl")) {
    const std::vector<StepRecord> steps = read_metrics(run / "metrics.jsonl").steps;
    const auto last = std::find_if(steps.rbegin(), steps.rend(), [&](const StepRecord& r) { return r.step == step; });
    if (last != steps.rend()) return last->batch.value_or(step - 1);
  }
  const auto checkpoint = newest_checkpoint(run);
  const SpikeState spikes = checkpoint ? read_progress(*checkpoint).spikes.value_or(SpikeState()) : SpikeState();
  return spikes.batch_of(step - 1);
}

// A sample of a run that is asked about.
class Why {
 public:
  explicit Why(const WhyOptions& o)
      : run_(o.run), named_{{"step", o.step}}, sample_(o.sample), recipe_(recipe_of(o.run)) {
    const std::vector<RunSpan> spans = run_spans(recipe_);
    const RunSpan& span = spans[span_of(spans, o.step - 1)];
    const std::string asked = fmt::format("--step {}", o.step);
    take(span, asked);
    if (o.step > recipe_.train.train_iters)
      throw ConfigError(fmt::format("{}: the run has steps 1 to {}", asked, recipe_.train.train_iters));
    const int64_t last = last_step_of(run_);
    if (o.step > last)
      throw ConfigError(fmt::format("{}: not trained yet: the run has trained {} of its {} steps", asked, last,
                                    recipe_.train.train_iters));
    place(spans, span, batch_of(run_, o.step), asked);
  }
  // A run that goes past batches has one span, and in any other batch B is that of step B + 1.
  explicit Why(const WhyBatchOptions& o)
      : run_(o.run), named_{{"batch", o.batch}}, sample_(o.sample), recipe_(recipe_of(o.run)) {
    const std::vector<RunSpan> spans = run_spans(recipe_);
    const RunSpan& span = spans[span_of(spans, o.batch)];
    const std::string asked = fmt::format("--batch {}", o.batch);
    take(span, asked);
    place(spans, span, o.batch, asked);
  }

  Report report() const {
    const auto checkpoint = newest_checkpoint(run_);  // the model's own folder may be gone by now
    const int64_t vocab_size = read_hf_config(checkpoint ? *checkpoint : fs::path(recipe_.model.path)).spec.vocab_size;
    DataSpec spec = data_spec_of(recipe_, vocab_size);
    spec.fingerprint = false;
    spec.begun = begun_;
    const SampleOrder order(spec);
    const SampleOrder::Place at = order.place_of(number_);
    const std::string version = check_unchanged(run_, order, at.source);
    const OpenSource& source = order.source(at.source);
    Report r = named_;
    r["sample"] = sample_;
    r["samples_of_the_step"] = recipe_.train.global_batch_size;
    r["number"] = number_;
    r["file"] = source.tokens->path();
    r["tokens"] = recipe_.train.seq_length;
    r["counted_targets"] = source.counted(at.sample).targets;
    const auto dataset = find_dataset(spec.paths[at.source]);
    if (!version.empty() && (!dataset || dataset->version != version))
      throw FileError(
          fmt::format("{}: was of dataset version {} when the run began, and is of {}: its stages tell another story",
                      spec.paths[at.source], version, dataset ? dataset->version : "none"));
    if (dataset) r["dataset"] = {{"folder", dataset->folder.string()}, {"version", dataset->version}};
    add_documents(r, source, at.sample, dataset, vocab_size);
    return r;
  }

 private:
  void take(const RunSpan& span, const std::string& asked) {
    recipe_ = span.recipe;
    begun_ = span.begun;
    if (!reads_tokens(recipe_.train.objective))
      throw ConfigError(fmt::format("{}: a step of {} (train.objective = \"{}\") reads rows of {}, not documents",
                                    asked, name_of(span), recipe_.train.objective,
                                    data_key_of(recipe_.train.objective)));
  }
  // Which sample it is, of that batch.
  void place(const std::vector<RunSpan>& spans, const RunSpan& span, int64_t batch, const std::string& asked) {
    const int64_t samples = recipe_.train.global_batch_size, last = last_step_of(run_);
    if (sample_ >= samples)
      throw ConfigError(fmt::format("--sample {}: a step has samples 0 to {}", sample_, samples - 1));
    if (const int64_t now = spans[span_of(spans, last - 1)].mix; now != span.mix) {
      const auto first = std::find_if(spans.begin(), spans.end(), [&](const RunSpan& s) { return s.mix == now; });
      throw ConfigError(fmt::format(
          "{}: the run has gone on to a phase with other data, of which data.json is; steps {} to {} can be "
          "explained",
          asked, first->first_step + 1, last));
    }
    number_ = span.first_sample + (batch - span.first_step) * samples + sample_;
  }
  void add_documents(Report& r, const OpenSource& source, int64_t sample, const std::optional<DatasetFile>& dataset,
                     int64_t vocab_size) const {
    std::optional<Provenance> provenance;
    if (dataset) provenance.emplace(*dataset);
    const std::vector<Part> parts = parts_of(source, sample);
    std::vector<DocumentStory> stories;
    if (provenance) {
      std::vector<DocumentId> ids;
      for (const Part& p : parts) ids.push_back(provenance->document(p.document));
      stories = provenance->stories(ids);
    }
    const Texts texts(provenance, recipe_, run_, vocab_size);
    if (!texts.why_not().empty()) r["no_text"] = texts.why_not();
    r["documents"] = Report::array();
    for (size_t i = 0; i < parts.size(); ++i) {
      const Packing::Segment& p = parts[i].segment;
      Report one{{"positions", {p.row, p.row + p.size}},
                 {"document", parts[i].document},
                 {"tokens", {parts[i].first, parts[i].first + p.size}},
                 {"of", parts[i].tokens}};
      if (provenance) one.update(story_of(stories[i]));
      std::vector<int32_t> ids(size_t(p.size), 0);
      source.tokens->read(p.begin, ids);
      one["text"] = texts.of(ids);
      r["documents"].push_back(one);
    }
  }

  const fs::path run_;
  const Report named_;  // the step, or the batch, that is asked about
  const int64_t sample_;
  Recipe recipe_;
  std::vector<int64_t> begun_;  // DataSpec's, of the step's phase
  int64_t number_ = 0;          // of the sample in the run; with phases, in those with this data
};

std::string as_json(const Report& r) { return r.dump(-1, ' ', false, Report::error_handler_t::replace); }

std::string origin_text(const Report& o) {
  return fmt::format("{}, row {}, bytes {} to {}", o["file"].get<std::string>(), o["row"].get<int64_t>(),
                     o["begin"].get<int64_t>(), o["end"].get<int64_t>());
}

std::string passed_text(const Report& passed) {
  std::string text;
  for (const Report& stage : passed) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", stage["stage"].get<std::string>());
    std::string rules;
    if (stage.contains("rules"))
      for (const Report& rule : stage["rules"]) rules += (rules.empty() ? "" : ", ") + rule.get<std::string>();
    if (!rules.empty()) text += " (" + rules + ")";
    if (stage["changed"].is_null()) text += ", which may have changed its text";
    if (stage["changed"] == true) text += ", which changed its text";
  }
  return text;
}

void print_document(const Report& d) {
  const int64_t first = d["tokens"][0], end = d["tokens"][1], all = d["of"];
  std::cout << fmt::format("\npositions {} to {}: {} of document {}\n", d["positions"][0].get<int64_t>(),
                           d["positions"][1].get<int64_t>() - 1,
                           first == 0 && end == all ? fmt::format("all {} tokens", all)
                                                    : fmt::format("tokens {} to {} of the {}", first, end - 1, all),
                           d["document"].get<int64_t>());
  if (d.contains("from"))
    std::cout << fmt::format("  from        {} (source {}, document {})\n", origin_text(d["from"]),
                             d["source"].get<std::string>(), d["id"].get<std::string>());
  if (d.contains("id")) {
    if (d.contains("url")) std::cout << "  url         " << in_quotes(d["url"].get<std::string>()) << "\n";
    std::cout << "  passed      " << (d["passed"].empty() ? "no stage but read" : passed_text(d["passed"])) << "\n";
    for (const Report& one : d["duplicates"])
      std::cout << fmt::format(
          "  stands for  {} (the same {}{}){}\n", one["id"].get<std::string>(), one["by"].get<std::string>(),
          one.contains("jaccard") ? fmt::format(", Jaccard {:.3f}", one["jaccard"].get<double>()) : "",
          one.contains("from") ? ": " + origin_text(one["from"]) : "");
  }
  if (d.contains("gone"))
    for (const Report& file : d["gone"])
      std::cout << "  gone        " << file.get<std::string>() << ": what it would tell is left out\n";
  if (!d["text"].is_null()) std::cout << "  text        " << as_json(d["text"]) << "\n";
}

int print_why(const Report& r, bool json) {
  if (json) {
    std::cout << as_json(r) << "\n";
    return kExitOk;
  }
  const char* of = r.contains("step") ? "step" : "batch";
  std::cout << fmt::format("{} {}, sample {} of {} (number {} of the run): {} of {} targets count\n", of,
                           r[of].get<int64_t>(), r["sample"].get<int64_t>(), r["samples_of_the_step"].get<int64_t>(),
                           r["number"].get<int64_t>(), r["counted_targets"].get<int64_t>(), r["tokens"].get<int64_t>());
  std::cout << r["file"].get<std::string>();
  if (r.contains("dataset"))
    std::cout << fmt::format(" of dataset {}, version {}", r["dataset"]["folder"].get<std::string>(),
                             r["dataset"]["version"].get<std::string>());
  std::cout << "\n";
  for (const Report& document : r["documents"]) print_document(document);
  if (r.contains("no_text")) std::cout << "\nno text: " << r["no_text"].get<std::string>() << "\n";
  return kExitOk;
}

}  // namespace

int run_data_why(const WhyOptions& options) { return print_why(Why(options).report(), options.json); }

int run_data_why(const WhyBatchOptions& options) { return print_why(Why(options).report(), options.json); }

}  // namespace weft
