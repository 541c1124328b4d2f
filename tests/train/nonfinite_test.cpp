// Bad numbers are named, by step, layer and tensor, whatever the layout.
#include <set>

#include "apps/program.h"
#include "support.h"
#include "train/golden.h"
#include "train/late_backend.h"
#include "weft/apps/backends.h"

namespace weft {
namespace {

constexpr int64_t kSeqLength = 8, kBatch = 8;

// A copy of a golden model in which some values of one tensor are not numbers.
class NonFinite : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(folder_, dir_ / "model");
    const std::string tokens = testing::slurp(folder_ / "tokens.bin");
    tokens_.resize(tokens.size() / sizeof(uint16_t));
    std::memcpy(tokens_.data(), tokens.data(), tokens_.size() * sizeof(uint16_t));
  }

  void spoil(const std::string& tensor, size_t first, size_t count) {
    const auto file = dir_ / "model/model.safetensors";
    std::string bytes = testing::slurp(folder_ / "model.safetensors");
    {
      const SafetensorsFile whole = SafetensorsFile::open(folder_ / "model.safetensors");
      const std::span<const std::byte> all = whole.bytes(*whole.find(tensor));
      const std::span<const std::byte> begin = whole.bytes(whole.tensors().front());
      const size_t data = bytes.size() - size_t(whole.bytes(whole.tensors().back()).data() - begin.data()) -
                          whole.bytes(whole.tensors().back()).size();
      const float nan = std::numeric_limits<float>::quiet_NaN();
      for (size_t i = first; i < first + count; ++i)
        std::memcpy(bytes.data() + data + size_t(all.data() - begin.data()) + i * sizeof nan, &nan, sizeof nan);
    }
    testing::spill(file, bytes);
  }

  // An id that the first step does not see, and the second does.
  uint16_t token_of_second_step() const {
    const auto step = [&](int64_t n) { return tokens_.begin() + n * kBatch * kSeqLength; };
    const std::set<uint16_t> seen(tokens_.begin(), step(1) + 1);
    return *std::find_if(step(1) + 1, step(2), [&](uint16_t id) { return seen.count(id) == 0; });
  }

  // The error that a run on this layout ends with; empty if it trains.
  std::string failure_of(const std::string& layout) {
    std::vector<std::string> overrides{"model.path=" + (dir_ / "model").string(),
                                       fmt::format("train.seq_length={}", kSeqLength),
                                       fmt::format("train.global_batch_size={}", kBatch),
                                       "train.micro_batch_size=1",
                                       "train.train_iters=2",
                                       "train.log_grad_norms=false",
                                       "optimizer.lr_warmup_iters=1",
                                       "run.threads=1"};
    std::istringstream words(layout);
    for (std::string word; words >> word;) overrides.push_back("parallel." + word);
    const Recipe recipe = testing::golden_recipe(folder_, dir_ / fmt::format("run{}", runs_++), overrides);
    return testing::error_of<NumericsError>([&] { testing::train(recipe, device_(machine_for(recipe))); });
  }

  void expect_weight_token_and_head_named(const std::string& layout) {
    SCOPED_TRACE(layout);
    spoil("model.layers.2.mlp.down_proj.weight", 70, 1);
    const std::string weight = failure_of(layout);
    EXPECT_SAYS(weight, "step 1: loss nan");
    EXPECT_SAYS(weight, "first in blocks.2.mlp: matmul.out [");
    EXPECT_SAYS(weight, ", micro-batch ");
    EXPECT_SAYS(weight, ", on rank ");
    EXPECT_SAYS(weight, "the step began with blocks.2.mlp.down.weight: 1 of ");
    const size_t width = 64;
    spoil("model.embed_tokens.weight", token_of_second_step() * width, width);
    const std::string token = failure_of(layout);
    EXPECT_SAYS(token, "step 2: loss nan");
    EXPECT_SAYS(token, "first in embed: embed.out [");
    EXPECT_SAYS(token, "the step began with embed.tokens: ");
    spoil("lm_head.weight", 3, 1);
    const std::string head = failure_of(layout);
    EXPECT_SAYS(head, "step 1: loss nan");
    EXPECT_SAYS(head, "first in head: matmul.out [");
    EXPECT_SAYS(head, "the step began with head.weight: 1 of ");
  }

  const std::filesystem::path folder_ = std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa";
  testing::TempDir dir_;
  std::vector<uint16_t> tokens_;
  int runs_ = 0;
  std::function<Machine(Machine)> device_ = [](Machine machine) { return machine; };
};
using NonFiniteSlow = NonFinite;

TEST_F(NonFinite, ABadValueIsNamedByStepLayerAndTensorOnALayout) {
  expect_weight_token_and_head_named("dp=2 pp=2 zero_stage=3");
}

TEST_F(NonFinite, ABadValueIsNamedOnADeviceWithMemoryOfItsOwn) {
  device_ = testing::apart;
  expect_weight_token_and_head_named("");
}

// Its stage has no temporaries but those that look for bad numbers.
TEST_F(NonFinite, AStageOfTheEmbeddingAloneTrainsSavesAndNamesABadValue) {
  const std::string layout = "pp=2 pipeline_layout=[0,4]";
  EXPECT_EQ(failure_of(layout), "");
  spoil("lm_head.weight", 3, 1);
  EXPECT_SAYS(failure_of(layout), "the step began with head.weight: 1 of ");
}

TEST_F(NonFiniteSlow, ABadValueIsNamedByStepLayerAndTensorOnAnyLayout) {
  for (const char* layout : {"",
                             "dp=2 tp=2 pp=2 zero_stage=3",
                             "dp=4",
                             "dp=4 zero_stage=1",
                             "dp=4 zero_stage=2",
                             "dp=4 zero_stage=3",
                             "dp=4 zero_stage=3 zero_shard_size=2",
                             "tp=2",
                             "tp=4",
                             "tp=2 sequence_parallel=false",
                             "tp=8",
                             "pp=2",
                             "pp=4 pipeline_schedule=zb_h1",
                             "pp=4 pipeline_schedule=gpipe",
                             "pp=2 pipeline_schedule=zbv",
                             "pp=2 pipeline_schedule=interleaved_1f1b",
                             "pp=4 recompute=full",
                             "tp=2 recompute=selective",
                             "dp=2 pp=2 zero_stage=1",
                             "dp=2 pp=2 zero_stage=2",
                             "dp=2 pp=2 zero_stage=3 pipeline_schedule=zbv",
                             "dp=2 tp=2 zero_stage=2",
                             "dp=2 tp=2 pp=2 recompute=full",
                             "dp=2 tp=2 pp=2 zero_stage=2 order=pp-dp-ep-cp-tp"})
    expect_weight_token_and_head_named(layout);
}

}  // namespace
}  // namespace weft
