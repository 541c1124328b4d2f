// weft bench decode: how fast a model reads prompts and goes on with texts, beside what memory and arithmetic allow.
#include "weft/apps/bench_decode.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/backends.h"
#include "weft/apps/cpu_machine.h"
#include "weft/apps/decode_floor.h"
#include "weft/apps/product_kernels.h"
#include "weft/base/error.h"
#include "weft/base/memory_limits.h"
#include "weft/base/rng.h"
#include "weft/gguf/gguf_file.h"
#include "weft/models/hf_config.h"
#include "weft/models/peft.h"
#include "weft/plan/layout.h"
#include "weft/records/clock.h"
#include "weft/step/kv_pages.h"
#include "weft/train/evaluate.h"
#include "weft/train/generate_texts.h"
#include "weft/train/matmul_rate.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

// A text is a prompt and `tokens` that follow: the prompt's pass gives the first of them, each pass behind it one more.
struct DecodeBench {
  int64_t texts, prompt, tokens;
  std::filesystem::path folder = {};
  std::optional<uint64_t> random_weights = {};  // their seed
  ModelSpec model = {};
  Precision precision = {};
  BackendKind backend = BackendKind::cpu;
  Numerics numerics = Numerics::fast;
  Machine machine = {};

  int64_t length() const { return prompt + tokens; }
  int64_t passes() const { return tokens - 1; }
};

// A folder that has config.json, neither weights of any kind, nor what a checkpoint of weft has beside them.
bool has_config_alone(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder / "config.json", ignored) || is_adapter_folder(folder) ||
      std::filesystem::exists(folder / "weft", ignored))
    return false;
  std::error_code error;
  for (auto file = std::filesystem::directory_iterator(folder, error); !error && file != end(file);
       file.increment(error))
    for (const char* weights : {".safetensors", ".bin", ".pt", ".pth", ".gguf"})
      if (file->path().filename().string().find(weights) != std::string::npos) return false;
  return !error;
}

void take_model(DecodeBench& bench, const BenchOptions& o) {
  if (!o.overrides.empty())
    throw ConfigError(fmt::format("{}: a model has no settings; name a recipe, or leave it out", o.overrides[0]));
  ModelOptions on;
  on.backend = o.backend.value_or("cpu"), on.precision = o.precision.value_or("f32");
  on.threads = o.threads.value_or(0);
  bench.folder = o.recipe;
  if (has_config_alone(bench.folder))
    bench.random_weights = 1;
  else
    bench.folder = model_folder_of(o.recipe, [](const std::string& line) { std::cerr << line << "\n"; });
  Recipe settled;
  settled.run.backend = choice_named<BackendKind>(on.backend).value();
  settle_backend(settled, true);
  on.backend = name_of(settled.run.backend);
  bench.backend = settled.run.backend;
  bench.precision = precision_of(on);
  bench.machine = machine_for(on);
}

void take_recipe(DecodeBench& bench, const BenchOptions& o) {
  if (o.backend || o.precision || o.threads)
    throw ConfigError("a recipe says run.backend, train.precision and run.threads: leave out the options");
  const Recipe recipe = first_steps_of(read_recipe(o.recipe, o.overrides));
  check_supported(recipe);
  if (const int world = mesh_sizes_of(recipe).world(); world > 1)
    throw ConfigError(
        fmt::format("a layout of {} ranks cannot run: bench decode times one; the nearest that works: without "
                    "parallel.* settings, or `weft generate --rate` on a layout",
                    world));
  if (recipe.adapter.kind != AdapterKind::none)
    throw ConfigError(
        "adapter.kind: bench decode times a model without one; the nearest that works: adapter.kind=none");
  bench.folder = recipe.model.path;
  if (recipe.model.init == InitChoice::random)
    bench.random_weights = uint64_t(recipe.train.seed);
  else
    bench.folder = model_folder_of(recipe.model.path, [](const std::string& line) { std::cerr << line << "\n"; });
  bench.precision = precision_of(recipe);
  bench.backend = recipe.run.backend;
  bench.numerics = numerics_of(recipe);
  bench.machine = machine_for(recipe);
}

// A recipe says where the model lies, what to compute in and on what; beside a model's folder, the options do.
DecodeBench decode_bench_of(const BenchOptions& o) {
  if (o.recipe.empty())
    throw ConfigError("bench decode needs a model or a recipe, as in `weft bench decode bench/gpt2-124m.toml`");
  if (!o.layouts.empty() || !o.trace.empty() || o.ops || !o.ranks.empty() || !o.out.empty() || !o.cluster.empty() ||
      o.again)
    throw ConfigError("bench decode takes none of --layouts, --trace, --ops, --ranks, --out, --again and --cluster");
  DecodeBench bench{.texts = o.batch.value_or(16), .prompt = o.prompt.value_or(128), .tokens = o.tokens.value_or(64)};
  require_no_file_of_weights(o.recipe, "model");
  std::error_code ignored;
  if (o.recipe.ends_with(".toml") || (std::filesystem::is_regular_file(o.recipe, ignored) && !is_gguf(o.recipe)))
    take_recipe(bench, o);
  else
    take_model(bench, o);
  bench.model = read_hf_config(bench.folder).spec;
  require_vocabulary_head(bench.model, bench.folder.string());
  if (const int64_t most = bench.model.max_positions; most > 0 && bench.length() > most)
    throw ConfigError(
        fmt::format("--prompt {} and --tokens {} are {} tokens, and the model was made for {} at once; ask for fewer",
                    bench.prompt, bench.tokens, bench.length(), most));
  return bench;
}

TextGenerator::Spec generator_of(const DecodeBench& bench, int64_t texts) {
  TextGenerator::Spec spec{.machine = bench.machine,
                           .precision = bench.precision,
                           .texts = std::vector<TextGenerator::Text>(size_t(texts), {bench.prompt, bench.length()}),
                           .random_weights = bench.random_weights};
  if (texts > 1) spec.later = {{bench.prompt}};  // the first of them alone
  return spec;
}

// Training's forward pass over one prompt, with the logits and losses of all its tokens.
Evaluator::Spec forward_of(const DecodeBench& bench) {
  return {.machine = bench.machine,
          .precision = bench.precision,
          .seq_length = bench.prompt,
          .random_weights = bench.random_weights};
}

// Some texts at once: the best of several rounds.
struct DecodeRate {
  int64_t texts;
  double weight_bytes, cache_bytes;  // that a pass reads
  std::vector<ProductKernels> kernels;
  double prompts_s = 1e30, pass_s = 1e30;  // all prompts with the first choices; a further token of each
  double bytes() const { return weight_bytes + cache_bytes; }
  double tokens_per_s() const { return double(texts) / pass_s; }
};

struct DecodeTimes {
  DecodeRate one, batch;
  double prompt_flops, forward_flops;  // of one prompt
  std::vector<ProductKernels> prompt_kernels;
  double forward_s = 1e30;
  double bandwidth = 0, matmul_rate = 0;  // measured
  double prefill_rate() const { return prompt_flops / one.prompts_s; }
  double forward_rate() const { return forward_flops / forward_s; }
  double batch_over_one() const { return batch.tokens_per_s() / one.tokens_per_s(); }
};

// The generator and the evaluator hold weights each.
void require_memory_left(const DecodeBench& bench, const TextGenerator::Needs& needs) {
  const auto left = memory_left_here();
  if (!bench.machine.device.empty() || !left) return;
  const StepSpec forward =
      forward_step({}, bench.model, {.precision = bench.precision, .seq_length = bench.prompt, .size = 1}, 0);
  const int64_t bytes =
      needs.total() + measure_forward(bench.model, forward, *bench.machine.workspace_model).total_bytes();
  if (bytes > left->bytes)
    throw ConfigError(
        fmt::format("no memory for {} MiB: weights for generation and for training's forward pass, keys, values and "
                    "temporaries: {}; fewer --batch, --prompt and --tokens take less",
                    bytes >> 20, left->what));
}

std::vector<ProductKernels> kernels_here(const DecodeBench& bench, const PassData& pass) {
  if (bench.backend != BackendKind::cpu) return {};
  return kernels_of(products_of(pass), bench.machine.threads, bench.numerics);
}

DecodeTimes untimed(const DecodeBench& bench, const TextGenerator::Needs& needs) {
  const double row_bytes = double(needs.cache_bytes) / double(needs.pages * KvPages::kRows);
  const double seen_bytes = row_bytes * rows_seen(bench.model, bench.prompt, bench.prompt + bench.passes());
  const auto rate_of = [&](int64_t texts, const PassData& token) {
    return DecodeRate{.texts = texts,
                      .weight_bytes = weight_bytes_of(token, bench.model, texts),
                      .cache_bytes = double(texts) * seen_bytes,
                      .kernels = kernels_here(bench, token)};
  };
  const TextGenerator::Passes alone = TextGenerator::passes(bench.model, generator_of(bench, 1));
  const TextGenerator::Passes together = TextGenerator::passes(bench.model, generator_of(bench, bench.texts));
  // A prompt's pass has the logits of its last token alone.
  const double logits_flops = 2 * double(bench.prompt - 1) * double(bench.model.width * bench.model.vocab_size);
  return {.one = rate_of(1, alone.token),
          .batch = rate_of(bench.texts, together.token),
          .prompt_flops = pass_flops(alone.begin),
          .forward_flops = pass_flops(alone.begin) + logits_flops,
          .prompt_kernels = kernels_here(bench, alone.begin)};
}

// One more token than a prompt has, for the last target.
std::vector<Tokens> random_texts(const DecodeBench& bench, int64_t round) {
  std::vector<Tokens> texts(size_t(bench.texts), Tokens(size_t(bench.prompt + 1)));
  const uint64_t key = rng_key(uint64_t(round), "prompts");
  uint64_t i = 0;
  for (Tokens& text : texts)
    for (int32_t& token : text) token = int32_t(random_bits(key, i++) % uint64_t(bench.model.vocab_size));
  return texts;
}

void time_texts(TextGenerator& generator, const DecodeBench& bench, const std::vector<Tokens>& prompts,
                DecodeRate& best) {
  const Sampling greedy{.temperature = 0};
  GenerateRequest::Times times;
  GenerateRequest request{.prompts = prompts, .how = greedy, .max_tokens = bench.tokens};
  request.times = &times;
  generate_texts(generator, request);
  best.prompts_s = std::min(best.prompts_s, times.prompts_s);
  best.pass_s = std::min(best.pass_s, times.tokens_s / double(bench.passes()));
}

void time_forward(Evaluator& forward, const Tokens& text, double& best_s) {
  const double began = now_s();
  forward.scores({{.ids = text, .scored = int64_t(text.size()) - 1}});
  best_s = std::min(best_s, now_s() - began);
}

// In turns, so that all see the same machine. The first round warms up.
DecodeTimes time_decoding(const DecodeBench& bench, int64_t iters) {
  const TextGenerator::Spec spec = generator_of(bench, bench.texts);
  const TextGenerator::Needs needs = TextGenerator::measure(bench.model, spec);
  require_memory_left(bench, needs);
  DecodeTimes best = untimed(bench, needs);
  TextGenerator generator(bench.folder, spec);
  Evaluator forward(bench.folder, forward_of(bench));
  for (int64_t i = 0; i <= iters; ++i) {
    std::vector<Tokens> prompts = random_texts(bench, i);
    DecodeTimes warming = best;
    DecodeTimes& into = i == 0 ? warming : best;
    time_forward(forward, prompts[0], into.forward_s);
    for (Tokens& prompt : prompts) prompt.pop_back();
    time_texts(generator, bench, {prompts[0]}, into.one);
    if (bench.texts > 1) time_texts(generator, bench, prompts, into.batch);
    if (i == 0) continue;
    into.bandwidth = std::max(into.bandwidth, bench.machine.measure_bandwidth());
    into.matmul_rate = std::max(into.matmul_rate, bench.machine.measure_matmul_rate(bench.precision.compute));
  }
  if (bench.texts == 1) best.batch = best.one;
  return best;
}

nlohmann::json json_of_kernels(const std::vector<ProductKernels>& kernels) {
  nlohmann::json list = nlohmann::json::array();
  for (const ProductKernels& k : kernels) list.push_back({{"dtype", k.dtype}, {"kernel", k.kernel}, {"part", k.part}});
  return list;
}

nlohmann::json json_of_times(const DecodeBench& bench, const DecodeTimes& t) {
  const auto written = [&](const DecodeRate& r) {
    return nlohmann::json{{"texts", r.texts},
                          {"tokens_per_s", r.tokens_per_s()},
                          {"pass_s", r.pass_s},
                          {"weight_bytes", r.weight_bytes},
                          {"cache_bytes", r.cache_bytes},
                          {"bytes_per_s", r.bytes() / r.pass_s},
                          {"of_bandwidth", r.bytes() / r.pass_s / t.bandwidth},
                          {"prompts_s", r.prompts_s},
                          {"prompt_tokens_per_s", double(r.texts * bench.prompt) / r.prompts_s},
                          {"kernels", json_of_kernels(r.kernels)}};
  };
  return {{"model", bench.folder.string()},
          {"random_weights", bench.random_weights.has_value()},
          {"machine", bench.machine.description},
          {"precision", name_of(bench.precision.compute)},
          {"prompt", bench.prompt},
          {"tokens", bench.tokens},
          {"bandwidth_bytes_per_s", t.bandwidth},
          {"matmul_flops_per_s", t.matmul_rate},
          {"prefill",
           {{"tokens_per_s", double(bench.prompt) / t.one.prompts_s},
            {"flops", t.prompt_flops},
            {"flops_per_s", t.prefill_rate()},
            {"kernels", json_of_kernels(t.prompt_kernels)}}},
          {"training_forward",
           {{"tokens_per_s", double(bench.prompt) / t.forward_s},
            {"flops", t.forward_flops},
            {"flops_per_s", t.forward_rate()}}},
          {"prefill_over_training_forward", t.prefill_rate() / t.forward_rate()},
          {"one", written(t.one)},
          {"batch", written(t.batch)},
          {"batch_over_one", t.batch_over_one()},
          {"other_kernels", bench.backend == BackendKind::cpu ? lines_of_other_kernels(bench.precision.compute)
                                                              : std::vector<std::string>{}}};
}

std::string prompts_text(const DecodeBench& bench, const DecodeTimes& t) {
  std::string text =
      fmt::format("{:<22} {:>12} {:>12} {:>12} {:>14}\n", "reading", "ms", "tokens/s", "GFLOP/s", "of large ones");
  const auto line = [&](const std::string& what, int64_t prompts, double s, double flops) {
    text +=
        fmt::format("{:<22} {:>12.2f} {:>12.1f} {:>12.1f} {:>14}\n", what, s * 1e3, double(prompts * bench.prompt) / s,
                    flops / s / 1e9, t.matmul_rate > 0 ? fmt::format("{:.2f}", flops / s / t.matmul_rate) : "-");
  };
  line("a prompt", 1, t.one.prompts_s, t.prompt_flops);
  line("training's forward", 1, t.forward_s, t.forward_flops);
  if (bench.texts > 1)
    line(fmt::format("{} prompts", bench.texts), bench.texts, t.batch.prompts_s, double(bench.texts) * t.prompt_flops);
  return text + fmt::format(
                    "a prompt is computed at {:.2f} x the rate of training's forward, which has logits and "
                    "losses of all tokens\n\n",
                    t.prefill_rate() / t.forward_rate());
}

std::string tokens_text(const DecodeBench& bench, const DecodeTimes& t) {
  std::string text = fmt::format("{:<22} {:>12} {:>12} {:>12} {:>14} {:>8} {:>14}\n", "writing", "ms a token",
                                 "tokens/s", "MB weights", "MB keys+values", "GB/s", "of measured");
  const auto line = [&](const std::string& what, const DecodeRate& r) {
    const double rate = r.bytes() / r.pass_s;
    text += fmt::format("{:<22} {:>12.3f} {:>12.1f} {:>12.3f} {:>14.3f} {:>8.1f} {:>14.2f}\n", what, r.pass_s * 1e3,
                        r.tokens_per_s(), r.weight_bytes / 1e6, r.cache_bytes / 1e6, rate / 1e9, rate / t.bandwidth);
  };
  line("one text", t.one);
  if (bench.texts > 1) line(fmt::format("{} texts", bench.texts), t.batch);
  const auto from_caches = [&](const DecodeRate& r) { return r.bytes() > r.pass_s * t.bandwidth; };
  if (from_caches(t.one) || from_caches(t.batch)) text += "above 1, caches hold a part of what is read\n";
  if (bench.texts > 1)
    text += fmt::format("{} texts at once are written {:.2f} x as fast as one\n", bench.texts, t.batch_over_one());
  return text + "\n";
}

std::string kernels_text(const DecodeBench& bench, const DecodeTimes& t) {
  if (bench.backend != BackendKind::cpu) return "";
  std::string text;
  const auto lines = [&](const std::string& what, const std::vector<ProductKernels>& kernels) {
    for (const ProductKernels& k : kernels) text += what + to_string(k) + "\n";
  };
  lines("a prompt's ", t.prompt_kernels);
  lines("one text's ", t.one.kernels);
  if (bench.texts > 1) lines(fmt::format("{} texts' ", bench.texts), t.batch.kernels);
  for (const std::string& line : lines_of_other_kernels(bench.precision.compute)) text += line + "\n";
  return text;
}

std::string text_of_times(const DecodeBench& bench, const DecodeTimes& t) {
  return fmt::format("{}{}: prompts of {} tokens, {} more of each, {}, {}\nmeasured: {:.1f} GB/s{}\n\n",
                     bench.folder.string(), bench.random_weights ? " (random weights)" : "", bench.prompt, bench.tokens,
                     name_of(bench.precision.compute), bench.machine.description, t.bandwidth / 1e9,
                     t.matmul_rate > 0 ? ", large products " + flops_text(t.matmul_rate) : "") +
         prompts_text(bench, t) + tokens_text(bench, t) + kernels_text(bench, t);
}

}  // namespace

int bench_decode(const BenchOptions& o) {
  const DecodeBench bench = decode_bench_of(o);
  const DecodeTimes times = time_decoding(bench, o.iters);
  std::cout << (o.json ? json_of_times(bench, times).dump() + "\n" : text_of_times(bench, times));
  return kExitOk;
}

}  // namespace weft
