// The page that a run serves of itself.
#include "weft/apps/run_page.h"

#include <gtest/gtest.h>

#include "page/http_viewer.h"
#include "page/watched_runs.h"

namespace weft {
namespace {

Recipe recipe_of(const std::filesystem::path& run, int port = 0) {
  Recipe recipe;
  recipe.run.dir = run.string();
  recipe.run.page = true;
  recipe.run.page_port = port;
  return recipe;
}

int port_of(const RunPage& page) { return std::atoi(page.url().c_str() + std::string("http://127.0.0.1:").size()); }

TEST(RunPage, IsServedOnlyWhereTheRecipeAsksForIt) {
  testing::TempDir dir;
  Recipe without = recipe_of(dir / "first");
  without.run.page = false;
  EXPECT_EQ(RunPage(without).url(), "");
  const RunPage page(recipe_of(dir / "first"));  // before the folder is there
  testing::make_run(dir / "first");
  const auto reply = testing::http(port_of(page), "/api/runs");
  EXPECT_EQ(nlohmann::json::parse(reply.body)["runs"][0]["step"], 4);
}

TEST(RunPage, DoesNotEndARunWhosePortIsTaken) {
  testing::TempDir dir;
  const RunPage first(recipe_of(dir / "a"));
  ::testing::internal::CaptureStderr();
  const RunPage second(recipe_of(dir / "a", port_of(first)));
  EXPECT_SAYS(::testing::internal::GetCapturedStderr(), "the run goes on without its page");
  EXPECT_EQ(second.url(), "");
}

}  // namespace
}  // namespace weft
