// `weft doctor`, as a process.
#include <gtest/gtest.h>

#include "apps/models.h"
#include "apps/program.h"

namespace weft {
namespace {

using testing::Finished;
using testing::spill;
using testing::TempDir;

TEST(Doctor, LooksAtARecipeBeforeAnythingIsMade) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "model");
  spill(dir / "model/config.json", testing::kOneLayer);
  spill(dir / "t.txt", std::string(500, 'a'));
  spill(dir / "r.toml",
        testing::placed_in(dir.path(),
                           "[model]\npath = \"DIR/model\"\ninit = \"random\"\n[data]\ntrain = [\"DIR/t.txt\"]\n"
                           "[train]\nseq_length = 8\nglobal_batch_size = 2\nmicro_batch_size = 1\n"
                           "train_iters = 2\n[run]\ndir = \"DIR/run\"\nbackend = \"ref\"\n"));
  const Finished f = testing::weft({"doctor", (dir / "r.toml").string(), "--json"});
  EXPECT_EQ(f.status, 0) << f.err << f.out;
  const auto all = nlohmann::json::parse(f.out);
  std::string seen;
  for (const auto& finding : all) {
    seen += finding["what"].get<std::string>() + "\n";
    EXPECT_NE(finding["verdict"], "bad") << finding;
  }
  for (const char* what : {"memory\n", "room for checkpoints\n", "writing\n", "locks\n", "open files"})
    EXPECT_SAYS(seen, what);
  EXPECT_EQ(seen.find("\nroom\n"), std::string::npos) << "judged once";
  EXPECT_FALSE(std::filesystem::exists(dir / "run"));
  EXPECT_EQ(testing::weft({"doctor", (dir / "nowhere.toml").string()}).status, 1);
}

}  // namespace
}  // namespace weft
