// Tokens that come one by one, with what came before them in a cache.
#include <gtest/gtest.h>

#include "places.h"
#include "support.h"
#include "weft/apps/backends.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

std::vector<double> logits_after(const std::string& model, const std::vector<int32_t>& ids,
                                 const std::vector<size_t>& pieces) {
  Recipe recipe;
  recipe.run.backend = BackendKind::ref;
  const Machine machine = machine_for(recipe);
  const auto all = int64_t(ids.size());
  TextGenerator generator(std::filesystem::path(testing::kSourceDir) / "tests/golden" / model,
                          {.machine = machine, .precision = kF64, .texts = {{.prompt = all, .all = all}}});
  std::span<const double> last;
  size_t fed = 0;
  for (const size_t n : pieces) {
    last = generator.feed(std::span(ids).subspan(fed, n));
    fed += n;
  }
  EXPECT_EQ(fed, ids.size());
  return {last.begin(), last.end()};
}

// Rotary and learned positions, grouped heads, norms of heads, and a window that is shorter than the text.
TEST(Decoding, TokenByTokenIsTheWholeTextAtOnce) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 40; ++i) ids.push_back((7 * i * i + 3 * i + 1) % 61);
  for (const char* model : {"gpt2", "llama-gqa", "qwen3-qknorm", "mistral-window"}) {
    const std::vector<double> whole = logits_after(model, ids, {40});
    for (const std::vector<size_t>& pieces :
         {std::vector<size_t>(40, 1), std::vector<size_t>{25, 1, 1, 9, 1, 1, 1, 1}}) {
      const std::vector<double> parts = logits_after(model, ids, pieces);
      ASSERT_EQ(parts.size(), whole.size());
      for (size_t v = 0; v < whole.size(); ++v) EXPECT_NEAR(parts[v], whole[v], 1e-11) << model << " " << v;
    }
  }
}

// A context that is longer than what was asked for forgets nothing.
TEST(Decoding, MoreTokensThanWereAskedForAreRefused) {
  Recipe recipe;
  recipe.run.backend = BackendKind::ref;
  const Machine machine = machine_for(recipe);
  TextGenerator generator(std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa",
                          {.machine = machine, .precision = kF64, .texts = {{.prompt = 3, .all = 4}}, .context = 10});
  generator.feed(std::vector<int32_t>{1, 2, 3});
  generator.feed(std::vector<int32_t>{4});
  EXPECT_NE(testing::error_of([&] { generator.feed(std::vector<int32_t>{5}); }).find("1 tokens after 4"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
