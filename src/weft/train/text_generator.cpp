#include "weft/train/text_generator.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "weft/base/threads.h"
#include "weft/device/tensor_values.h"
#include "weft/gguf/gguf_file.h"
#include "weft/models/hf_weights.h"
#include "weft/ops/dry/dry_backend.h"
#include "weft/plan/op_notes.h"
#include "weft/sharding/text_ranks.h"
#include "weft/step/decoding_pass.h"
#include "weft/train/checkpoint_folders.h"

namespace weft {

namespace {

// An adapter's base is whole, and the one that it was trained beside.
const std::filesystem::path& with_base(const std::filesystem::path& folder, const ProcessMesh& alone,
                                       const std::function<void(const std::string&)>& say) {
  if (!is_adapter_folder(folder)) return folder;
  const std::filesystem::path base = base_of_adapter(folder, read_peft_config(folder));
  const std::string note = require_whole(base, CheckpointPart::model, *alone.world, usable_cores());
  if (!note.empty()) say("note: " + note);
  require_base(folder, base);
  return folder;
}

}  // namespace

std::filesystem::path model_folder_of(const std::filesystem::path& path,
                                      const std::function<void(const std::string&)>& say) {
  namespace fs = std::filesystem;
  if (is_gguf(path)) return path;
  require_no_file_of_weights(path, "the model");
  const ProcessMesh alone = single_mesh();
  std::error_code ignored;
  const bool is_run = fs::exists(path / "recipe.toml", ignored) && fs::exists(path / "checkpoints", ignored);
  const bool is_model = fs::exists(path / "config.json", ignored) || is_adapter_folder(path);
  if (is_checkpoint(path) || (!is_run && is_model) || !why_no_model(path).empty()) {
    const std::string note = require_whole(path, CheckpointPart::model, *alone.world, usable_cores());
    if (!note.empty()) say("note: " + note);
    return with_base(path, alone, say);
  }
  const FoundCheckpoint found = find_checkpoint(path, CheckpointPart::model, *alone.world, usable_cores());
  for (const std::string& note : found.notes) say(note);
  if (found.path) return with_base(*found.path, alone, say);
  throw FileError(fmt::format("{}: neither a model's folder (config.json), nor a GGUF file, nor a run with checkpoints",
                              path.string()));
}

// Forgetting a quarter at a time costs three tokens fed again for one that is new.
int64_t least_seen(int64_t context) { return std::max<int64_t>(1, context - std::max<int64_t>(1, context / 4)); }

namespace {

using Spec = TextGenerator::Spec;
using Text = TextGenerator::Text;

// Ranks of dp that share experts pass through the model together. One that has no text to feed feeds a filler, a token
// that nobody asks for. In the books it stands behind the texts.
bool shares_experts(const Spec& spec) { return spec.layout.ep > 1 && spec.layout.dp > 1; }
int64_t filler_of(const Spec& spec) { return int64_t(spec.texts.size()); }
DecodingRows begin_filler(CacheBooks& books, const Spec& spec) {
  const std::vector<int32_t> ids{0};
  return books.begin(std::vector<CacheBooks::Beginning>{{filler_of(spec), ids, 1}});
}
// As if a rank of dp had the texts that another one has.
std::vector<Spec> of_each_rank(const Spec& spec) {
  std::vector<Spec> all{spec};
  if (shares_experts(spec))
    for (const std::vector<Text>& texts : spec.others) all.emplace_back(spec).texts = texts;
  return all;
}

// What may become of a text within a context (0: none).
bool forgets(const Text& t, int64_t context) { return context > 0 && t.all >= context; }
int64_t most_cached(const Text& t, int64_t context) { return forgets(t, context) ? context : t.all; }
int64_t begins_with(const Text& t, int64_t context) {
  return forgets(t, context) && t.prompt > context ? least_seen(context) : t.prompt;
}

int64_t most_seen(const Spec& spec) {
  int64_t most = 0;
  for (const Text& t : spec.texts) most = std::max(most, most_cached(t, spec.context));
  return most;
}

// The tokens of a text that comes by turns pass in portions whose lengths are powers of two, so that every pass that
// may come can be planned. Ranks of cp take them one by one (CacheBooks::next).
constexpr int64_t kLargestPortion = 256;
int64_t portion_of_turns(int64_t tokens, const Spec& spec) {
  return int64_t(std::bit_floor(uint64_t(spec.layout.cp > 1 ? 1 : std::min(tokens, kLargestPortion))));
}

// Tokens of a pass that texts begin with: all prompts at once, or a text that has forgotten.
int64_t most_at_once(const Spec& spec) {
  if (spec.by_turns) return portion_of_turns(spec.texts[0].all, spec);
  int64_t prompts = 0, again = 0;
  for (const Text& t : spec.texts) {
    prompts += begins_with(t, spec.context);
    if (forgets(t, spec.context)) again = std::max(again, least_seen(spec.context));
  }
  return std::max(prompts, again);
}

// Stages that share their cores need not work at once: each has the threads of all while a pass is in it.
const Machine& machine_of(const Spec& spec) { return spec.machine.of_stages ? *spec.machine.of_stages : spec.machine; }

// Through other pipelines, texts begin in portions: a stage computes one while the stage behind it computes the one
// before. With four portions for each stage, a stage waits for less than a fifth of the time, (pp - 1) / (5 pp - 1);
// short prompts have fewer. Shorter portions than kLeastPortion lose more in products of few rows than they gain. Ranks
// of cp cut whole prompts.
constexpr int64_t kPortionsOfStage = 4, kLeastPortion = 64;
int64_t tokens_of_portion(const Spec& spec) {
  const int64_t all = most_at_once(spec), portions = kPortionsOfStage * spec.layout.pp;
  if (spec.layout.pp == 1 || spec.layout.cp > 1 || spec.by_turns || spec.machine.of_stages) return all;
  return std::min(all, std::max(kLeastPortion, (all + portions - 1) / portions));
}
bool begins_in_portions(const Spec& spec) { return tokens_of_portion(spec) < most_at_once(spec); }

// A text that begins, of which the first `done` tokens have passed.
struct Unread {
  int64_t text;
  std::span<const int32_t> ids;
  int64_t done = 0;
  int64_t left() const { return int64_t(ids.size()) - done; }
};
// The next portion of such texts, one behind the other: at most so many tokens.
std::vector<CacheBooks::Next> take_portion(std::vector<Unread>& texts, int64_t tokens) {
  std::vector<CacheBooks::Next> portion;
  for (Unread& t : texts) {
    const int64_t n = std::min(tokens, t.left());
    if (n == 0) continue;
    portion.push_back(
        {.text = t.text, .position = t.done, .ids = t.ids.subspan(size_t(t.done), size_t(n)), .ends = n == t.left()});
    t.done += n, tokens -= n;
  }
  return portion;
}

// Blocks are dealt out to stages as if there were no head: of a prompt it sees one token. What texts there are does not
// count, for ranks of dp have others in the same stages.
Recipe::Parallel with_stages(const ModelSpec& model, const Spec& spec) {
  Recipe recipe;
  recipe.parallel = spec.layout;
  recipe.train.seq_length = spec.context > 0 ? spec.context : std::max<int64_t>(1, model.max_positions);
  ModelSpec headless = model;
  headless.vocab_size = 0;
  if (spec.layout.pp > 1) recipe.parallel.pipeline_layout = block_layout_of(recipe, headless);
  return recipe.parallel;
}

StepSpec step_of(const ModelSpec& model, const Spec& spec) {
  const int64_t seen = CacheBooks::filled(most_seen(spec), spec.layout.cp);
  return forward_step(with_stages(model, spec), model, {.precision = spec.precision, .seq_length = seen, .size = 1},
                      spec.mesh.world->rank());
}

RankOf cp_of(const StepSpec& step) { return step.sequences().ranks; }

// What texts begin with, without their tokens.
struct Prompts {
  std::vector<int32_t> ids;
  std::vector<CacheBooks::Beginning> all;
  explicit Prompts(const Spec& spec) : ids(size_t(most_at_once(spec)), 0) {
    for (size_t i = 0; i < spec.texts.size(); ++i) {
      const Text& t = spec.texts[i];
      all.push_back(
          {int64_t(i), std::span(ids).first(size_t(begins_with(t, spec.context))), most_cached(t, spec.context)});
    }
  }
};

// The most rows that a rank keeps of a text that has forgotten its beginning: the text begins again, alone, and grows
// by the rest, page by page.
int64_t kept_again(int64_t context, int64_t ranks) {
  const int64_t least = least_seen(context), rest = KvPages::pages_for(context - least) + ranks;
  return std::min(context, CacheBooks::filled(least, ranks) / ranks + (rest + ranks - 1) / ranks * KvPages::kRows);
}

int64_t pages_of_turns(int64_t tokens, RankOf cp) {
  CacheBooks books(cp, KvPages::pages_for(tokens), 1);
  books.pass_over(0, 0, tokens);
  int64_t most = 0;
  for (int64_t rank = 0; rank < cp.size; ++rank) most = std::max(most, KvPages::pages_for(books.kept(0, rank)));
  return most;
}

// On each rank of cp, the most that one of them needs.
int64_t pages_needed(const Spec& spec, RankOf cp) {
  if (spec.by_turns) return pages_of_turns(spec.texts[0].all, cp);
  int64_t enough = 0, most = 0;
  for (const Text& t : spec.texts) enough += KvPages::pages_for(most_cached(t, spec.context));
  CacheBooks books(cp, enough, int64_t(spec.texts.size()));
  const Prompts prompts(spec);
  books.begin(prompts.all);
  for (const CacheBooks::Beginning& t : prompts.all) books.pass_over(t.text, int64_t(t.ids.size()), t.expected);
  for (int64_t rank = 0; rank < cp.size; ++rank) {
    int64_t pages = shares_experts(spec) ? 1 : 0;  // the filler's
    for (const CacheBooks::Beginning& t : prompts.all) {
      const int64_t again = forgets(spec.texts[size_t(t.text)], spec.context) ? kept_again(spec.context, cp.size) : 0;
      pages += KvPages::pages_for(std::max(books.kept(t.text, rank), again));
    }
    most = std::max(most, pages);
  }
  return most;
}

// The logits after each text that ends, in the last stage; else none.
Tensor pass(const DecodingPass& on, Arena& scratch, const DecodingRows& rows) {
  return run_decoding(on, rows, scratch);
}

// Passes of texts that begin together, dry.
void begin_dry(const DecodingPass& on, Arena& scratch, const Spec& spec, CacheBooks& books,
               const std::vector<CacheBooks::Beginning>& texts) {
  if (!begins_in_portions(spec)) {
    pass(on, scratch, books.begin(texts));
    return;
  }
  std::vector<Unread> unread;
  for (const CacheBooks::Beginning& t : texts) unread.push_back({t.text, t.ids});
  while (std::any_of(unread.begin(), unread.end(), [](const Unread& t) { return t.left() > 0; }))
    pass(on, scratch, books.next(take_portion(unread, tokens_of_portion(spec))));
}

// All passes of a text that comes by turns, dry: portions of each length, which look back at as much as can be there.
void pass_turns_dry(const DecodingPass& on, Arena& scratch, const Spec& spec, int64_t pages) {
  const int64_t all = spec.texts[0].all;
  for (int64_t n = most_at_once(spec); n > 1; n /= 2) {
    CacheBooks books(cp_of(on.step), pages, 1);
    books.pass_over(0, 0, all - n);
    const std::vector<int32_t> ids(size_t(n), 0);
    pass(on, scratch, books.next(std::vector<CacheBooks::Next>{{.text = 0, .position = all - n, .ids = ids}}));
  }
  pass(on, scratch, any_step(1, {{0, std::min(all, pages * KvPages::kRows), 0}}, cp_of(on.step)));
}

// All passes of a rank with these texts, dry: all prompts, a text that begins again, a token of one text or more.
void pass_dry(const DecodingPass& on, Arena& scratch, const Spec& spec, int64_t pages) {
  if (spec.by_turns) return pass_turns_dry(on, scratch, spec, pages);
  const RankOf cp = cp_of(on.step);
  CacheBooks together(cp, pages, int64_t(spec.texts.size()) + 1);
  begin_dry(on, scratch, spec, together, Prompts(spec).all);
  if (shares_experts(spec)) pass(on, scratch, begin_filler(together, spec));
  if (std::any_of(spec.texts.begin(), spec.texts.end(), [&](const Text& t) { return forgets(t, spec.context); })) {
    const std::vector<int32_t> ids(size_t(least_seen(spec.context)), 0);
    CacheBooks alone(cp, pages, 1);
    begin_dry(on, scratch, spec, alone, {{0, ids, int64_t(ids.size())}});
  }
  const std::vector<CachedRun> seen{{0, std::min(most_seen(spec), pages * KvPages::kRows), 0}};
  for (size_t n = 1; n <= spec.texts.size(); ++n) pass(on, scratch, any_step(n, seen, cp));
}

// The passes that later batches begin with, dry: with fewer rows, a product may need a larger workspace.
void begin_later_dry(const DecodingPass& on, Arena& scratch, const Spec& spec, int64_t pages) {
  for (const std::vector<int64_t>& batch : spec.later) {
    Spec these = spec;
    these.texts.clear();
    for (const int64_t tokens : batch) these.texts.push_back({.prompt = tokens, .all = tokens});
    WEFT_CHECK(batch.size() <= spec.texts.size() && most_at_once(these) <= most_at_once(spec) && spec.context == 0,
               "{} texts in the places of {}, or longer ones, or forgetful ones", batch.size(), spec.texts.size());
    const Prompts prompts(these);
    CacheBooks books(cp_of(on.step), pages, int64_t(spec.texts.size()) + 1);
    begin_dry(on, scratch, spec, books, prompts.all);
  }
}

// The model of a rank, on memory that only counts.
struct DryGenerator {
  const StepSpec step;
  const ProcessMesh mesh;
  PersistentArenas persistent;
  ParamStore params;
  Transformer transformer;
  Arena scratch{"scratch"};

  DryGenerator(const ModelSpec& model, const Spec& spec, Traffic* traffic = nullptr)
      : step(step_of(model, spec)),
        mesh(dry_mesh(step.mesh, step.rank, traffic)),
        params(step.precision, step.order, mesh, WeightUse::frozen),
        transformer(params, model, step.model) {
    params.allocate_frozen(persistent.params, persistent.transit);
    transformer.allocate_constants(persistent.constants, step.precision);
  }
  std::vector<KvCache> make_caches(Arena& cache, int64_t pages) const {
    return transformer.make_caches(cache, step.precision, pages * KvPages::kRows);
  }
  DecodingPass pass_on(Backend& backend, const std::vector<KvCache>& caches, const Spec& spec) {
    return {backend, mesh, step, transformer, params, caches, spec.shares_from, spec.reaches_experts};
  }
};

}  // namespace

// Where experts are shared, rows of the rank with most tokens set the size of all buffers of them.
TextGenerator::Needs TextGenerator::measure(const ModelSpec& model, const Spec& spec) {
  WEFT_CHECK(!spec.texts.empty(), "no texts");
  WEFT_CHECK(!shares_experts(spec) || int64_t(spec.others.size()) + 1 == spec.layout.dp,
             "texts of {} other ranks of {}", spec.others.size(), spec.layout.dp);
  WEFT_CHECK(!spec.by_turns || (spec.texts.size() == 1 && spec.layout.dp == 1 && spec.context == 0),
             "{} texts by turns on {} ranks of dp, with a window of {}", spec.texts.size(), spec.layout.dp,
             spec.context);
  WEFT_CHECK(!spec.reaches_experts || spec.layout.dp == 1, "ranks of dp go through a model at different times");
  DryGenerator dry(model, spec);
  const RankOf cp = cp_of(dry.step);
  Needs needs{.plan = {}, .pages = pages_needed(spec, cp), .cache_bytes = 0, .tokens_at_once = tokens_of_portion(spec)};
  Arena cache("cache");
  dry.make_caches(cache, needs.pages);
  DryBackend backend(*machine_of(spec).workspace_model);
  const std::vector<Spec> ranks = of_each_rank(spec);
  for (const Spec& rank : ranks) {
    if (model.learned_positions && most_seen(rank) > model.max_positions)
      throw ConfigError(fmt::format("{} tokens at once: the model has a table of {} positions; ask for fewer",
                                    most_seen(rank), model.max_positions));
    Arena theirs("cache");
    const int64_t pages = pages_needed(rank, cp);
    const std::vector<KvCache> caches = dry.make_caches(theirs, pages);
    const DecodingPass on = dry.pass_on(backend, caches, spec);
    pass_dry(on, dry.scratch, rank, pages);
    if (&rank == &ranks.front()) begin_later_dry(on, dry.scratch, spec, pages);
  }
  needs.plan.persistent = dry.persistent.peak();
  needs.plan.evaluation = dry.scratch.peak();
  needs.plan.workspace = backend.workspace_bytes();
  needs.cache_bytes = cache.peak();
  return needs;
}

TextGenerator::Passes TextGenerator::passes(const ModelSpec& model, const Spec& spec) {
  Traffic traffic;
  DryGenerator dry(model, spec, &traffic);
  const RankOf cp = cp_of(dry.step);
  const int64_t pages = pages_needed(spec, cp);
  Arena cache("cache");
  const std::vector<KvCache> caches = dry.make_caches(cache, pages);
  DryBackend backend(*machine_of(spec).workspace_model);
  OpNotes notes(backend);
  const DecodingPass on = dry.pass_on(notes, caches, spec);
  Traffic before;
  const auto take = [&](int64_t rows) {
    PassData data{.rows = rows, .ops = notes.take(), .transfers = traffic.since(before).counts()};
    before = traffic;
    return data;
  };
  Spec first = spec;
  first.texts.resize(1);
  Passes both;
  CacheBooks books(cp, pages, 1);
  const Prompts prompts(first);
  pass(on, dry.scratch, books.begin(prompts.all));
  both.begin = take(most_at_once(first));
  const std::vector<CachedRun> seen{{0, std::min(most_seen(spec), pages * KvPages::kRows), 0}};
  pass(on, dry.scratch, any_step(spec.texts.size(), seen, cp));
  both.token = take(int64_t(spec.texts.size()));
  return both;
}

TextGenerator::TextGenerator(const std::filesystem::path& folder, const Spec& spec)
    : config_(read_hf_config(folder)),
      spec_(spec),
      machine_(machine_of(spec)),
      step_(step_of(config_.spec, spec)),
      needs_(measure(config_.spec, spec)),
      rank_({folder, config_.spec, spec.reaches_experts, spec.random_weights}, step_, needs_.plan, machine_, spec.mesh),
      cache_memory_("cache of keys and values", needs_.cache_bytes, machine_.memory),
      scratch_("scratch", needs_.plan.evaluation, machine_.memory),
      staging_(machine_.memory, most_at_once(spec), rank_.mesh.poller()),
      caches_(rank_.model.make_caches(cache_memory_, step_.precision, needs_.pages * KvPages::kRows)),
      books_(cp_of(step_), needs_.pages, int64_t(spec.texts.size()) + 1),
      texts_(spec.texts.size()),
      last_(spec.texts.size()) {
  // Both are as large as what a pass takes. The cache is not touched: a long context may never fill it.
  scratch_.touch();
  rank_.workspace.touch();
}

bool TextGenerator::on_any_rank(bool here) {
  if (!shares_experts(spec_)) return here;
  double ranks = here ? 1 : 0;
  ranks_of_other_texts(rank_.mesh).all_reduce({&ranks, DType::f64, {1}}).wait();
  return ranks > 0;
}

std::span<const double> TextGenerator::feed(std::span<const More> more) {
  std::vector<int64_t> waiting;
  for (const auto& [text, ids] : more) {
    State& t = texts_[size_t(text)];
    const bool begins = t.seen.empty();
    const Text& spec = spec_.texts[size_t(text)];
    const auto n = int64_t(ids.size());
    WEFT_CHECK(n > 0 && (forgets(spec, spec_.context) || t.fed + n <= spec.all), "{} tokens after {}", n, t.fed);
    for (const int32_t id : ids)
      if (id < 0 || id >= config_.spec.vocab_size)
        throw ConfigError(fmt::format("token {} is not in the model's vocabulary of {}", id, config_.spec.vocab_size));
    t.fed += n;
    t.seen.insert(t.seen.end(), ids.begin(), ids.end());
    if (begins) t.begins_with = n;
    if (forgets(spec, spec_.context) && int64_t(t.seen.size()) > spec_.context) forget_oldest(text);
    waiting.push_back(text);
  }
  while (on_any_rank(!waiting.empty())) {
    waiting.empty() ? feed_filler() : feed_some(waiting);
    std::erase_if(waiting, [&](int64_t text) {
      return texts_[size_t(text)].cached == int64_t(texts_[size_t(text)].seen.size());
    });
  }
  logits_.clear();
  for (const More& m : more) {
    const std::vector<double>& last = last_[size_t(m.text)];
    logits_.insert(logits_.end(), last.begin(), last.end());
  }
  return logits_;
}

// One pass: of texts that begin, all at once or a portion of them; of one that begins again; or of the next token of
// each. These are the passes that are planned: with fewer rows, a product may need a larger workspace.
void TextGenerator::feed_some(const std::vector<int64_t>& waiting) {
  if (spec_.by_turns) return feed_portion();
  std::vector<int64_t> beginning, again, next;
  for (const int64_t text : waiting) {
    const State& t = texts_[size_t(text)];
    (t.cached >= t.begins_with ? next : t.began ? again : beginning).push_back(text);
  }
  if (!beginning.empty()) return begin(beginning);
  again.empty() ? step(next) : begin({again[0]});
}

void TextGenerator::feed_portion() {
  State& t = texts_[0];
  const int64_t left = int64_t(t.seen.size()) - t.cached, n = portion_of_turns(left, spec_);
  if (t.cached == 0) books_.expect(0, spec_.texts[0].all);
  const CacheBooks::Next portion{.text = 0,
                                 .position = t.cached,
                                 .ids = std::span(t.seen).subspan(size_t(t.cached), size_t(n)),
                                 .ends = n == left};
  t.cached += n;
  const Tensor logits = pass_of(books_.next({&portion, 1}));
  if (portion.ends) keep_logits({0}, logits);
}

// The tokens that are still seen, as a text that begins with them: keys and values of others are in what was kept of
// them, so all are fed again.
void TextGenerator::forget_oldest(int64_t text) {
  State& t = texts_[size_t(text)];
  const int64_t least = least_seen(spec_.context), given = spec_.texts[size_t(text)].keep_first;
  const int64_t first = given < least ? given : 0;
  t.seen.erase(t.seen.begin() + first, t.seen.end() - (least - first));
  t.cached = 0;
  t.begins_with = least;
  books_.forget(text);
}

void TextGenerator::feed_filler() {
  pass_of(begin_filler(books_, spec_));
  books_.forget(filler_of(spec_));
}

std::span<const int32_t> TextGenerator::unfed(int64_t text, std::span<const int32_t> ids) {
  const std::vector<int32_t>& seen = texts_[size_t(text)].seen;
  if (seen.size() < ids.size() && std::equal(seen.begin(), seen.end(), ids.begin())) return ids.subspan(seen.size());
  end(text);
  texts_[size_t(text)] = {};
  return ids;
}

void TextGenerator::end(int64_t text) {
  books_.forget(text);
  texts_[size_t(text)].cached = 0;
}

void TextGenerator::begin(const std::vector<int64_t>& texts) {
  if (begins_in_portions(spec_)) return begin_portion(texts);
  std::vector<CacheBooks::Beginning> beginning;
  for (const int64_t text : texts) {
    State& t = texts_[size_t(text)];
    beginning.push_back({text, t.seen, most_cached(spec_.texts[size_t(text)], spec_.context)});
    t.cached = t.begins_with;
    t.began = true;
  }
  keep_logits(texts, pass_of(books_.begin(beginning)));
}

void TextGenerator::begin_portion(const std::vector<int64_t>& texts) {
  std::vector<Unread> unread;
  for (const int64_t text : texts) unread.push_back({text, texts_[size_t(text)].seen, texts_[size_t(text)].cached});
  const std::vector<CacheBooks::Next> portion = take_portion(unread, tokens_of_portion(spec_));
  std::vector<int64_t> ended;
  for (const CacheBooks::Next& part : portion) {
    State& t = texts_[size_t(part.text)];
    if (t.cached == 0) books_.expect(part.text, most_cached(spec_.texts[size_t(part.text)], spec_.context));
    t.cached += int64_t(part.ids.size());
    if (!part.ends) continue;
    t.began = true;
    ended.push_back(part.text);
  }
  keep_logits(ended, pass_of(books_.next(portion)));
}

void TextGenerator::step(const std::vector<int64_t>& texts) {
  std::vector<CacheBooks::Next> next;
  for (const int64_t text : texts) {
    State& t = texts_[size_t(text)];
    next.push_back({text, t.cached, std::span(t.seen).subspan(size_t(t.cached), 1)});
    ++t.cached;
  }
  keep_logits(texts, pass_of(books_.next(next)));
}

Tensor TextGenerator::pass_of(const DecodingRows& rows) {
  const DecodingPass on{.backend = rank_.backend,
                        .mesh = rank_.mesh,
                        .step = step_,
                        .model = rank_.model,
                        .params = rank_.params,
                        .caches = caches_,
                        .shares_from = spec_.shares_from,
                        .reaches_experts = spec_.reaches_experts,
                        .links = &rank_.links,
                        .staging = &staging_};
  return pass(on, scratch_, rows);
}

void TextGenerator::keep_logits(const std::vector<int64_t>& texts, const Tensor& logits) {
  if (!logits) return;
  for (const int64_t text : texts) last_[size_t(text)].resize(size_t(config_.spec.vocab_size));
  copy_rows(*machine_.memory, logits, [&](int64_t row) { return last_[size_t(texts[size_t(row)])].data(); });
}

}  // namespace weft
