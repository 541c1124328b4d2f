// What a step with an adapter computes, beside one that trains all weights: counted by dry runs of bench's recipes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support.h"
#include "weft/plan/layout_plan.h"

namespace weft {
namespace {

double flops_of(const std::string& recipe, const std::vector<std::string>& more) {
  const std::filesystem::path bench = std::filesystem::path(testing::kSourceDir) / "bench";
  std::vector<std::string> all{"model.path=" + (bench / "models" / recipe).string(), "model.init=random"};
  all.insert(all.end(), more.begin(), more.end());
  return plan_run(parse_recipe(testing::slurp(bench / (recipe + ".toml")), recipe, all), WorkspaceModel())
      .memory.arithmetic.model_flops;
}

double share_with_lora(const std::string& recipe, int rank, std::vector<std::string> more = {}) {
  const double all = flops_of(recipe, more);
  more.insert(more.end(), {"adapter.kind=lora", fmt::format("adapter.rank={}", rank)});
  return flops_of(recipe, more) / all;
}

// Products with frozen weights have no gradients of these, a third of what they were. An adapter of all matrices adds
// rank (rows + columns) to each one's rows x columns, and attention stays as it was: so the share falls with the
// model's width, and at a width of 512 rank 16 is more than a third of what was saved.
TEST(AdapterArithmetic, AStepWithLoraTakesAtMostSevenTenthsOfTheArithmetic) {
  EXPECT_LE(share_with_lora("gpt2-124m", 16), 0.70);
  EXPECT_LE(share_with_lora("gpt2-124m", 16, {"train.seq_length=512"}), 0.70);
  const std::string wide = "model.path=" + std::string(testing::kSourceDir) + "/bench/models/llama-2-7b";
  EXPECT_LE(share_with_lora("llama-8x512", 16, {wide}), 0.69);
  EXPECT_LE(share_with_lora("llama-8x512", 8), 0.70);
  EXPECT_LE(share_with_lora("llama-8x512", 16), 0.706);
}

// In bf16 the sum of a matrix and its adapter would have lost what is small beside the matrix: it is not made.
TEST(AdapterArithmetic, InBf16AnAdapterStaysBesideItsMatrix) {
  EXPECT_GT(share_with_lora("llama-8x512", 16, {"train.precision=bf16"}), share_with_lora("llama-8x512", 16) + 0.005);
}

}  // namespace
}  // namespace weft
