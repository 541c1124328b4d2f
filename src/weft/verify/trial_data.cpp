#include "weft/verify/trial_data.h"

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "weft/base/error.h"
#include "weft/base/rng.h"
#include "weft/data/taught_samples.h"
#include "weft/data/token_writer.h"
#include "weft/train/run_data.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Removed, with all it holds, at the end of the scope; what was opened in it stays readable.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "weft-verify-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw FileError(fmt::format("{}: cannot be created", name));
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

template <class T, class F>
void write_numbers(const fs::path& file, int64_t count, const F& number) {
  std::vector<T> all(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) all[size_t(i)] = T(number(i));
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(all.data()), std::streamsize(all.size() * sizeof(T)));
  if (!out.flush()) throw FileError(fmt::format("{}: cannot be written", file.string()));
}

// Random ids in documents of up to two samples.
void write_documents(const fs::path& prefix, const Recipe& recipe, int64_t vocab_size, int64_t tokens) {
  const uint64_t ids = rng_key(uint64_t(recipe.train.seed), "verify tokens");
  const uint64_t sizes = rng_key(uint64_t(recipe.train.seed), "verify documents");
  MegatronWriter out(prefix, "int32");
  for (int64_t document = 0; out.size() < tokens; ++document) {
    const int64_t longest = std::min(2 * recipe.train.seq_length, tokens - out.size());
    std::vector<int32_t> all(1 + random_bits(sizes, uint64_t(document)) % uint64_t(longest));
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = int32_t(random_bits(ids, uint64_t(out.size()) + i) % uint32_t(vocab_size));
    out.add_document(all);
  }
  out.commit();
}

// Random rows of what the objective reads: pairs; judged examples, which may be mixed; or groups of rollouts, sampled
// by about what a model with random weights is.
void write_rows(const fs::path& file, const Recipe& recipe, int64_t vocab_size, int64_t rows) {
  std::mt19937_64 gen(rng_key(uint64_t(recipe.train.seed), "verify rows"));
  const auto below = [&](int64_t n) { return int64_t(gen() % uint64_t(std::max<int64_t>(1, n))); };
  const auto unit = [&] { return double(below(1 << 20)) / double(1 << 20); };
  const auto some = [&](int64_t most) {
    std::vector<int64_t> ids(size_t(1 + below(most)));
    for (int64_t& id : ids) id = below(vocab_size);
    return ids;
  };
  const bool pairs = data_key_of(recipe.train.objective) == "data.pairs";
  const bool groups = recipe.train.objective == ObjectiveKind::grpo;
  std::vector<int64_t> prompt;
  std::ofstream out(file);
  for (int64_t i = 0; i < rows; ++i) {
    if (!groups || i % recipe.objective.group_size == 0) prompt = some(recipe.train.seq_length / 2);
    const int64_t room = recipe.train.seq_length - int64_t(prompt.size());
    nlohmann::json row{{"prompt", prompt}};
    if (pairs) {
      row.update({{"chosen", some(room)}, {"rejected", some(room)}});
    } else if (recipe.train.objective == ObjectiveKind::kto) {
      row.update({{"completion", some(recipe.train.seq_length / 2)}, {"label", below(2) == 1}});
    } else {
      const std::vector<int64_t> completion = some(room);
      std::vector<double> old_logps(completion.size());
      for (double& x : old_logps) x = unit() - 0.5 - std::log(double(vocab_size));
      row.update({{"completion", completion}, {"reward", unit()}, {"old_logps", old_logps}});
      if (recipe.train.objective == ObjectiveKind::ppo) {
        std::vector<double> old_values(completion.size());
        for (double& x : old_values) x = unit() - 0.5;
        row.update({{"ref_logps", old_logps}, {"old_values", old_values}});
      }
    }
    out << row.dump() << "\n";
  }
  if (!out.flush()) throw FileError(fmt::format("{}: cannot be written", file.string()));
}

// k logits of each token of a sample, of distinct tokens, and a sum over all that leaves as much for the others, where
// there are others.
struct RandomTop {
  uint64_t seed;
  int64_t vocab_size;
  double temperature;
  void operator()(int64_t sample, const TopRows& to) const;
};
void RandomTop::operator()(int64_t sample, const TopRows& to) const {
  const uint64_t key = rng_key(rng_key(seed, "verify teacher"), uint64_t(sample));
  const auto top = size_t(to.top());
  for (size_t t = 0; t < to.lse.size(); ++t) {
    double sum = 0;
    for (size_t i = 0; i < top; ++i) {
      const size_t at = t * top + i;
      const int64_t begin = vocab_size * int64_t(i) / int64_t(top), end = vocab_size * int64_t(i + 1) / int64_t(top);
      to.ids[at] = int32_t(begin + random_bits(key, uint64_t(at)) % uint32_t(end - begin));
      to.logits[at] = float(4 * temperature * random_uniform(key, uint64_t(at)));
      sum += std::exp(to.logits[at] / temperature);
    }
    to.lse[t] = float(std::log(int64_t(top) < vocab_size ? 2 * sum : sum));
  }
}

}  // namespace

bool has_token_files(const Recipe& recipe) {
  if (!reads_tokens(recipe.train.objective)) return true;
  return std::all_of(recipe.data.train.begin(), recipe.data.train.end(), [](const std::string& path) {
    const std::string ending = fs::path(path).extension().string();
    std::error_code ignored;
    return fs::is_directory(path, ignored) || ending == ".bin" || ending == ".idx" || fs::exists(path + ".bin");
  });
}

std::shared_ptr<const TrainingSamples> open_token_files(const Recipe& recipe, const ModelSpec& model) {
  return open_run_data(recipe, model).train;
}

namespace {

std::shared_ptr<const TrainingSamples> random_samples(const Recipe& recipe, const ModelSpec& model, int64_t steps) {
  const TemporaryFolder folder;
  if (!reads_tokens(recipe.train.objective)) {
    const fs::path rows = folder / "rows.jsonl";
    write_rows(rows, recipe, model.vocab_size, steps * recipe.train.global_batch_size);
    Recipe r = recipe;
    r.data.pairs = r.data.rollouts = r.data.examples = rows.string();  // of which its objective reads one
    r.data.chat_template.clear();
    r.data.valid.clear();
    return open_run_data(r, model).train;
  }
  const fs::path pair = folder / "pair", ids = folder / "tokens.bin", mask = folder / "mask.bin";
  const int64_t n = steps * recipe.train.global_batch_size * recipe.train.seq_length + 1;
  const auto bits = [&](const char* what) {
    return [key = rng_key(uint64_t(recipe.train.seed), what)](int64_t i) { return random_bits(key, uint64_t(i)); };
  };
  const Recipe::Data defaults;
  const bool documents =
      recipe.data.packing != defaults.packing || recipe.data.attn_mask_type != defaults.attn_mask_type;
  if (documents)
    write_documents(pair, recipe, model.vocab_size, n);
  else
    write_numbers<uint32_t>(
        ids, n, [&, random = bits("verify tokens")](int64_t i) { return random(i) % uint32_t(model.vocab_size); });
  Recipe r = recipe;
  r.data = {};
  r.data.train = {documents ? pair.string() : ids.string()};
  r.data.packing = recipe.data.packing;
  r.data.attn_mask_type = recipe.data.attn_mask_type;
  r.data.dtype = IdDtype::uint32;
  if (!recipe.data.loss_mask.empty()) {
    write_numbers<uint8_t>(mask, n, [random = bits("verify mask")](int64_t i) { return random(i) % 3 != 0; });
    r.data.loss_mask = mask.string();
  }
  r.objective.teacher_logits.clear();  // they are of other tokens
  return open_run_data(r, model).train;
}

}  // namespace

std::shared_ptr<const TrainingSamples> random_tokens(const Recipe& recipe, const HfConfig& model, int64_t steps) {
  auto samples = random_samples(recipe, model.spec, steps);
  if (model.teacher_top == 0) return samples;
  const RandomTop top{uint64_t(recipe.train.seed), model.spec.vocab_size, recipe.objective.temperature};
  return std::make_shared<TaughtSamples>(std::move(samples), top, "random");
}

}  // namespace weft
