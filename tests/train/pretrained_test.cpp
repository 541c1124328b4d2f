// A real trained model, with outputs of independent implementations.
#include <cmath>

#include "token_files.h"
#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/train/evaluate.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

Machine machine(const std::string& backend) {
  Recipe recipe;
  recipe.run.backend = choice_named<BackendKind>(backend).value();
  return machine_for(recipe);
}
template <class T>
std::vector<T> numbers(const SafetensorsFile& file, const std::string& name) {
  const auto bytes = file.bytes(*file.find(name));
  std::vector<T> all(bytes.size() / sizeof(T));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

class Pretrained : public ::testing::TestWithParam<const char*> {
 protected:
  fs::path folder() const { return testing::shared_dir() / "data/models" / GetParam(); }
};

// Losses of single tokens, for which `weft eval` is asked window by window.
TEST_P(Pretrained, MeanLossOfTheGoldenBatchIsThatOfTheReference) {
  WEFT_NEEDS_SHARED();
  const SafetensorsFile golden = SafetensorsFile::open(folder() / "golden_forward.safetensors");
  const auto ids = numbers<int32_t>(golden, "tokens"), targets = numbers<int32_t>(golden, "targets");
  const auto nll = numbers<double>(golden, "nll");
  constexpr int64_t kSeq = 128;
  for (const char* backend : {"ref", "cpu"}) {
    const Machine m = machine(backend);
    const bool ref = std::string(backend) == "ref";
    Evaluator evaluator(folder(),
                        {.machine = m, .precision = ref ? kF64 : kF32, .seq_length = kSeq, .micro_batch_size = 1});
    for (int64_t row = 0; row < 4; ++row) {
      testing::TempDir dir;
      std::vector<int32_t> text(ids.begin() + row * kSeq, ids.begin() + (row + 1) * kSeq);
      text.push_back(targets[size_t((row + 1) * kSeq - 1)]);
      testing::write_raw_tokens(dir / "t.bin", text, "uint16");
      DataSpec spec;
      spec.paths = {(dir / "t.bin").string()};
      spec.vocab_size = evaluator.model().vocab_size;
      spec.seq_length = kSeq;
      double expected = 0;
      for (int64_t i = 0; i < kSeq; ++i) expected += nll[size_t(row * kSeq + i)] / kSeq;
      EXPECT_NEAR(evaluator.evaluate(*open_eval_windows(spec), 0).loss, expected, (ref ? 1e-9 : 1e-6) * expected)
          << backend;
    }
  }
}

TEST_P(Pretrained, LogitsAreThoseOfTheReference) {
  WEFT_NEEDS_SHARED();
  const SafetensorsFile golden = SafetensorsFile::open(folder() / "golden_forward.safetensors");
  const auto ids = numbers<int32_t>(golden, "tokens");
  const auto logits = numbers<float>(golden, "logits");
  const Machine m = machine("ref");
  TextGenerator generator(folder(), {.machine = m, .precision = kF64, .texts = {{.prompt = 5, .all = 128}}});
  size_t fed = 0;
  for (size_t n : {5, 1, 1, 4, 1}) {  // a prompt, then tokens that look back into the cache
    const auto got = generator.feed(std::span(ids).subspan(fed, n));
    fed += n;
    for (size_t v = 0; v < got.size(); ++v)
      EXPECT_NEAR(got[v], logits[(fed - 1) * got.size() + v], 1e-5) << fed << " " << v;
  }
}

// 20 AdamW steps from the pretrained weights: fine-tuning equals the reference's.
using PretrainedSlow = Pretrained;
TEST_P(PretrainedSlow, FineTuningFollowsTheReference) {
  WEFT_NEEDS_SHARED();
  const nlohmann::json golden = testing::read_json(folder() / "golden.json");
  const SafetensorsFile tokens = SafetensorsFile::open(folder() / "golden_tokens.safetensors");
  testing::TempDir dir;
  testing::write_raw_tokens(dir / "t.bin", numbers<int32_t>(tokens, "stream"), "uint16");
  for (const char* backend : {"ref", "cpu"}) {
    const bool ref = std::string(backend) == "ref";
    const Recipe recipe =
        parse_recipe("", "test",
                     {"model.path=" + folder().string(), "data.train=" + (dir / "t.bin").string(), "data.shuffle=false",
                      "train.seq_length=128", "train.global_batch_size=4", "train.micro_batch_size=2",
                      "train.train_iters=20", "optimizer.lr=1e-3", "optimizer.lr_decay_style=constant",
                      std::string("run.backend=") + backend, "run.dir=" + (dir / backend).string()});
    testing::train(recipe, machine(backend));
    const Metrics metrics = read_metrics(dir / backend / "metrics.jsonl");
    const auto expect_near = [&](const char* key, auto of) {
      double f32_distance = 0;  // of the reference's own f32 run from its fp64 run: what f32 can do here
      for (size_t i = 0; i < 20; ++i) {
        const double exact = golden["fp64"][key][i], f32 = golden["fp32"][key][i];
        f32_distance = std::max(f32_distance, std::abs(f32 - exact) / exact);
      }
      for (size_t i = 0; i < 20; ++i) {
        const double exact = golden["fp64"][key][i];
        EXPECT_NEAR(of(metrics.steps[i]), exact, (ref ? 1e-8 : 4 * f32_distance) * exact)
            << backend << " " << key << " " << i;
      }
    };
    expect_near("adamw_losses", [](const StepRecord& r) { return r.loss; });
    expect_near("adamw_gradnorms_before_clip", [](const StepRecord& r) { return r.grad_norm; });
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Pretrained, ::testing::Values("stories260K", "nanogpt_tiny"),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Models, PretrainedSlow, ::testing::Values("stories260K", "nanogpt_tiny"),
                         [](const auto& info) { return std::string(info.param); });

TEST(PretrainedTextSlow, GreedyTextIsThatOfTheReferenceProgram) {
  WEFT_NEEDS_SHARED();
  const fs::path folder = testing::shared_dir() / "data/models/stories260K";
  const std::string expected = testing::slurp(folder / "expected_greedy.txt");
  const auto tokenizer = open_sentencepiece(folder / "tok512.model");
  const Machine m = machine("cpu");
  std::vector<int32_t> next = prompt_ids(*tokenizer, "");
  TextGenerator generator(folder,
                          {.machine = m, .precision = kF32, .texts = {{.prompt = int64_t(next.size()), .all = 256}}});
  std::string text;
  IncrementalDecoder decoder(*tokenizer);
  while (text.size() < expected.size() && generator.fed() < 255) {
    const int32_t token = sample_token(generator.feed(next), {.temperature = 0}, 0);
    text += decoder.next(token);
    next = {token};
  }
  EXPECT_EQ(text.substr(0, expected.size()), expected.substr(0, text.size()));
  EXPECT_GT(text.size(), 400u);
}

// As llama-perplexity measures: chunks of 512 tokens of which the first is replaced by the beginning-of-text token, and
// of which the second half counts.
TEST(PretrainedTextSlow, PerplexityIsThatOfLlamaCpp) {
  WEFT_NEEDS_SHARED();
  const fs::path folder = testing::shared_dir() / "data/models/stories260K";
  constexpr int64_t kChunk = 512;
  const std::string text = testing::slurp(testing::shared_dir() / "data/text/tinystories_sample.txt").substr(0, 200000);
  const auto tokenizer = open_sentencepiece(folder / "tok512.model");
  std::vector<int32_t> ids = tokenizer->beginning();
  tokenizer->encode(text, ids);
  ids.resize(ids.size() / kChunk * kChunk + 1);
  std::string mask(ids.size(), '\0');
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i % kChunk == 0) ids[i] = 1;
    mask[i] = char(i % kChunk >= kChunk / 2 && i % kChunk < kChunk - 1);
  }
  testing::TempDir dir;
  testing::write_raw_tokens(dir / "t.bin", ids, "uint16");
  testing::spill(dir / "mask.bin", mask);
  const Machine m = machine("cpu");
  Evaluator evaluator(folder, {.machine = m, .precision = kF32, .seq_length = kChunk, .micro_batch_size = 4});
  DataSpec spec;
  spec.paths = {(dir / "t.bin").string()};
  spec.loss_mask = (dir / "mask.bin").string();
  spec.vocab_size = 512;
  spec.seq_length = kChunk;
  EXPECT_NEAR(evaluator.evaluate(*open_eval_windows(spec), 0).perplexity, 6.2997, 0.002);
}

}  // namespace
}  // namespace weft
