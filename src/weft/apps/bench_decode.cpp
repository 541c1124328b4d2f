// weft bench decode: how fast a model reads prompts and goes on with texts, beside what memory and arithmetic allow.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/backends.h"
#include "weft/apps/bench_decode.h"
#include "weft/base/error.h"
#include "weft/base/memory_limits.h"
#include "weft/base/rng.h"
#include "weft/models/hf_config.h"
#include "weft/plan/layout.h"
#include "weft/step/kv_pages.h"
#include "weft/train/generate_texts.h"
#include "weft/train/matmul_rate.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

struct DecodeBench {
  int64_t batch, prompt, tokens;
  std::filesystem::path folder = {};
  std::optional<uint64_t> random_weights = {};
  Precision precision = {};
  Machine machine = {};
};

// A recipe says where the model lies, what to compute in and on what; a model alone: the options do.
DecodeBench decode_bench_of(const BenchOptions& o) {
  if (o.recipe.empty())
    throw ConfigError("bench decode needs a model or a recipe, as in `weft bench decode bench/gpt2-124m.toml`");
  if (!o.layouts.empty() || !o.trace.empty() || o.ops || !o.ranks.empty() || !o.out.empty() || !o.cluster.empty())
    throw ConfigError("bench decode takes none of --layouts, --trace, --ops, --ranks, --out and --cluster");
  DecodeBench bench{.batch = o.batch.value_or(16), .prompt = o.prompt.value_or(128), .tokens = o.tokens.value_or(64)};
  const auto say = [](const std::string& line) { std::cerr << line << "\n"; };
  if (!o.recipe.ends_with(".toml")) {
    if (!o.overrides.empty())
      throw ConfigError(fmt::format("{}: a model has no settings; name a recipe, or leave it out", o.overrides[0]));
    ModelOptions on;
    on.backend = o.backend.value_or("cpu"), on.precision = o.precision.value_or("f32");
    on.threads = o.threads.value_or(0);
    bench.folder = model_folder_of(o.recipe, say);
    bench.precision = precision_of(on);
    bench.machine = machine_for(on);
    return bench;
  }
  if (o.backend || o.precision || o.threads)
    throw ConfigError("a recipe says run.backend, train.precision and run.threads: leave out the options");
  const Recipe recipe = first_steps_of(read_recipe(o.recipe, o.overrides));
  if (mesh_sizes_of(recipe).world() > 1)
    throw ConfigError(
        fmt::format("a layout of {} ranks cannot run: bench decode times one; the nearest that works: without "
                    "parallel.* settings, or `weft generate --rate` on a layout",
                    mesh_sizes_of(recipe).world()));
  bench.folder = recipe.model.path;
  if (recipe.model.init == InitChoice::random)
    bench.random_weights = uint64_t(recipe.train.seed);
  else
    bench.folder = model_folder_of(recipe.model.path, say);
  bench.precision = precision_of(recipe);
  bench.machine = machine_for(recipe);
  return bench;
}

// `texts` texts, of which each decodes bench.tokens tokens behind its first.
TextGenerator::Spec spec_of(const DecodeBench& bench, int64_t texts) {
  const int64_t all = bench.prompt + bench.tokens + 1;
  TextGenerator::Spec spec{.machine = bench.machine,
                           .precision = bench.precision,
                           .texts = std::vector<TextGenerator::Text>(size_t(texts), {bench.prompt, all}),
                           .random_weights = bench.random_weights};
  if (texts > 1) spec.later = {{bench.prompt}};  // the first of them alone
  return spec;
}

// What passes cannot do without.
struct PassNeeds {
  double weight_bytes = 0;  // read by products
  double flops = 0;
};
PassNeeds needs_of(const PassData& pass) {
  PassNeeds needs;
  for (const StepOp& op : pass.ops) {
    needs.flops += op.flops;
    const std::string weight = op.name == Matmul::kName ? "b" : op.name == GroupedMatmul::kName ? "w" : "";
    for (const StepOp::Operand& x : op.operands)
      if (!weight.empty() && x.field == weight)
        needs.weight_bytes += double(x.shape.elements()) * double(size_of(x.dtype));
  }
  return needs;
}

// Some texts at once: the best of several rounds.
struct DecodeRate {
  int64_t texts;
  double floor_bytes;  // of a token of each: weights, and keys and values at half of what is decoded
  double prompts_s = 1e30, tokens_s = 1e30;  // all prompts with the first choice; a token of each
  double written_per_s() const { return double(texts) / tokens_s; }
};

struct DecodeTimes {
  DecodeRate one, batch;
  double prompt_flops = 0;  // of one prompt
  double bandwidth = 0, matmul_rate = 0;
  double prefill_floor_s() const { return matmul_rate > 0 ? prompt_flops / matmul_rate : 0; }
};

std::vector<Tokens> prompts_of(const DecodeBench& bench, int64_t vocabulary, int64_t round) {
  std::vector<Tokens> prompts(size_t(bench.batch), Tokens(size_t(bench.prompt)));
  const uint64_t key = rng_key(uint64_t(round), "prompts");
  uint64_t i = 0;
  for (Tokens& prompt : prompts)
    for (int32_t& token : prompt)
      token = std::min(int32_t(vocabulary - 1), int32_t(random_uniform(key, i++) * double(vocabulary)));
  return prompts;
}

void time_texts(TextGenerator& generator, const DecodeBench& bench, const std::vector<Tokens>& prompts,
                DecodeRate& best) {
  const Sampling greedy{.temperature = 0};
  GenerateRequest::Times times;
  GenerateRequest request{.prompts = prompts, .how = greedy, .max_tokens = bench.tokens + 1};
  request.times = &times;
  generate_texts(generator, request);
  best.prompts_s = std::min(best.prompts_s, times.prompts_s);
  best.tokens_s = std::min(best.tokens_s, times.tokens_s / double(bench.tokens));
}

void require_memory_left(const TextGenerator::Needs& needs, const Machine& machine) {
  const auto left = memory_left_here();
  if (machine.device.empty() && left && needs.total() > left->bytes)
    throw ConfigError(
        fmt::format("no memory for {} MiB of weights, keys, values and temporaries: {}; fewer --batch, "
                    "--prompt and --tokens take less",
                    needs.total() >> 20, left->what));
}

DecodeTimes time_decoding(const DecodeBench& bench, int64_t iters) {
  const ModelSpec model = read_hf_config(bench.folder).spec;
  const TextGenerator::Spec alone = spec_of(bench, 1), together = spec_of(bench, bench.batch);
  const TextGenerator::Needs needs = TextGenerator::measure(model, together);
  require_memory_left(needs, bench.machine);
  const double row_bytes = double(needs.cache_bytes) / double(needs.pages * KvPages::kRows);
  const double seen_bytes = row_bytes * (double(bench.prompt) + double(bench.tokens + 1) / 2);
  const auto rate_of = [&](int64_t texts, const PassData& token) {
    return DecodeRate{.texts = texts, .floor_bytes = needs_of(token).weight_bytes + double(texts) * seen_bytes};
  };
  const TextGenerator::Passes one = TextGenerator::passes(model, alone);
  DecodeTimes times{.one = rate_of(1, one.token),
                    .batch = rate_of(bench.batch, TextGenerator::passes(model, together).token),
                    .prompt_flops = needs_of(one.begin).flops};
  TextGenerator generator(bench.folder, together);
  for (int64_t i = -1; i < iters; ++i) {
    const std::vector<Tokens> prompts = prompts_of(bench, model.vocab_size, i + 1);
    DecodeTimes warming = times;
    DecodeTimes& into = i < 0 ? warming : times;
    time_texts(generator, bench, {prompts[0]}, into.one);
    if (bench.batch > 1) time_texts(generator, bench, prompts, into.batch);
    times.bandwidth = std::max(times.bandwidth, bench.machine.measure_bandwidth());
    times.matmul_rate = std::max(times.matmul_rate, bench.machine.measure_matmul_rate(bench.precision.compute));
  }
  if (bench.batch == 1) times.batch = times.one;
  return times;
}

nlohmann::json json_of(const DecodeBench& bench, const DecodeTimes& t) {
  const auto rate = [&](const DecodeRate& r) {
    const double floor_s = r.floor_bytes / t.bandwidth;
    return nlohmann::json{{"texts", r.texts},
                          {"tokens_per_s", r.written_per_s()},
                          {"pass_s", r.tokens_s},
                          {"floor_s", floor_s},
                          {"floor_bytes", r.floor_bytes},
                          {"of_bandwidth", floor_s / r.tokens_s},
                          {"prefill_tokens_per_s", double(r.texts * bench.prompt) / r.prompts_s}};
  };
  return {{"machine", bench.machine.description},
          {"precision", name_of(bench.precision.compute)},
          {"prompt", bench.prompt},
          {"tokens", bench.tokens},
          {"bandwidth_bytes_per_s", t.bandwidth},
          {"matmul_flops_per_s", t.matmul_rate},
          {"prefill_flops", t.prompt_flops},
          {"one", rate(t.one)},
          {"batch", rate(t.batch)},
          {"batch_over_one", t.batch.written_per_s() / t.one.written_per_s()}};
}

std::string text_of(const DecodeBench& bench, const DecodeTimes& t) {
  std::string text = fmt::format(
      "{}: prompts of {} tokens, {} more of each, {}, {}\nmeasured: {:.1f} GB/s, {}\n\n", bench.folder.string(),
      bench.prompt, bench.tokens, name_of(bench.precision.compute), bench.machine.description, t.bandwidth / 1e9,
      t.matmul_rate > 0 ? "large products " + flops_text(t.matmul_rate) : "no rate of large products");
  text += fmt::format("{:<22} {:>10} {:>10} {:>8} {:>12}\n", "", "floor ms", "ms", "ratio", "tokens/s");
  const auto line = [&](const std::string& what, double floor_s, double s, double tokens) {
    text += fmt::format("{:<22} {:>10.3f} {:>10.3f} {:>8} {:>12.1f}", what, floor_s * 1e3, s * 1e3,
                        floor_s > 0 ? fmt::format("{:.3f}", s / floor_s) : "-", tokens / s);
  };
  const auto written = [&](const DecodeRate& r) {
    line(r.texts == 1 ? "a token of one text" : fmt::format("a token of {} texts", r.texts),
         r.floor_bytes / t.bandwidth, r.tokens_s, double(r.texts));
    text += fmt::format("   {:.2f} of bandwidth, {:.1f} MB\n", r.floor_bytes / t.bandwidth / r.tokens_s,
                        r.floor_bytes / 1e6);
  };
  const auto read = [&](const DecodeRate& r) {
    line(r.texts == 1 ? "a prompt" : fmt::format("{} prompts", r.texts), double(r.texts) * t.prefill_floor_s(),
         r.prompts_s, double(r.texts * bench.prompt));
    text += "\n";
  };
  written(t.one);
  if (bench.batch > 1) written(t.batch);
  read(t.one);
  if (bench.batch > 1) {
    read(t.batch);
    text += fmt::format("{} texts at once write {:.2f} x as much as one\n", bench.batch,
                        t.batch.written_per_s() / t.one.written_per_s());
  }
  return text;
}

}  // namespace

int bench_decode(const BenchOptions& o) {
  const DecodeBench bench = decode_bench_of(o);
  const DecodeTimes times = time_decoding(bench, o.iters);
  std::cout << (o.json ? json_of(bench, times).dump() + "\n" : text_of(bench, times));
  return kExitOk;
}

}  // namespace weft
