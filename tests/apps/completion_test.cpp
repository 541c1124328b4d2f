// Completion scripts, asked by their own shells.
#include <gtest/gtest.h>

#include <algorithm>

#include "apps/program.h"
#include "weft/recipe/recipe.h"

namespace weft {
namespace {

using testing::Finished;
using testing::run;
using testing::spill;
using testing::TempDir;
using testing::weft;

bool has_shell(const std::string& shell) { return run({.args = {"-c", "exit 0"}, .program = shell}).status == 0; }

std::vector<std::string> sorted_lines_of(const std::string& text) {
  std::vector<std::string> lines = testing::lines_of(text);
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::string quoted(const std::string& word) { return "'" + word + "'"; }

// What bash offers for the last of these words.
std::vector<std::string> bash_offers(const std::vector<std::string>& words, const std::string& folder = "/") {
  const TempDir dir;
  const Finished script = weft({"completion", "bash"});
  EXPECT_EQ(script.status, 0);
  spill(dir / "weft.bash", script.out);
  std::string ask =
      "set -u; cd " + quoted(folder) + "; source " + quoted((dir / "weft.bash").string()) + "; COMP_WORDS=(";
  for (const auto& word : words) ask += quoted(word) + " ";
  ask += "); COMP_CWORD=" + std::to_string(words.size() - 1) +
         "; _weft; for one in ${COMPREPLY[@]+\"${COMPREPLY[@]}\"}; do echo \"$one\"; done";
  const Finished f = run({.args = {"--norc", "-c", ask}, .program = "bash"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(f.err, "");
  return sorted_lines_of(f.out);
}

using Words = std::vector<std::string>;

TEST(BashCompletion, OffersSubcommandsAndTheirOptions) {
  EXPECT_EQ(bash_offers({"weft", "tr"}), Words{"train"});
  const Words all = bash_offers({"weft", ""});
  for (const char* name : {"train", "plan", "verify", "generate", "eval", "inspect", "bench", "completion"})
    EXPECT_TRUE(std::binary_search(all.begin(), all.end(), name)) << name;
  EXPECT_EQ(bash_offers({"weft", "plan", "r.toml", "--s"}),  // of `weft plan` and `weft plan score`
            (Words{"--scale", "--schedule", "--schedule-svg", "--search", "--serve"}));
  EXPECT_EQ(bash_offers({"weft", "verify", "r.toml", "--"}), (Words{"--help", "--json", "--steps", "--whole"}));
  EXPECT_EQ(bash_offers({"weft", "generate", "--top-"}), (Words{"--top-k", "--top-p"}));
}

TEST(BashCompletion, OffersTheValuesOfOptions) {
  EXPECT_EQ(bash_offers({"weft", "generate", "m", "--backend", ""}), (Words{"auto", "cpu", "cuda", "ref"}));
  EXPECT_EQ(bash_offers({"weft", "generate", "m", "--precision", "=", "b"}), Words{"bf16"});
  EXPECT_EQ(bash_offers({"weft", "completion", ""}), (Words{"bash", "fish", "zsh"}));
}

TEST(BashCompletion, OffersEveryRecipeKeyAfterTheRecipe) {
  Words keys;
  for (const KeyHelp& key : recipe_help()) keys.push_back(key.key + "=");
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(bash_offers({"weft", "train", "r.toml", ""}), keys);
  EXPECT_EQ(bash_offers({"weft", "plan", "--json", "r.toml", "run.dir", "=", "x", "train.numer"}),
            Words{"train.numerics="});
  EXPECT_EQ(bash_offers({"weft", "bench", "step", "--iters", "3", "r.toml", "optimizer.na"}), Words{"optimizer.name="});
}

// bash cuts words at '=' unless told otherwise.
TEST(BashCompletion, OffersTheValuesOfRecipeKeys) {
  EXPECT_EQ(bash_offers({"weft", "train", "r.toml", "train.numerics", "="}),
            (Words{"fast", "invariant", "nondeterministic"}));
  EXPECT_EQ(bash_offers({"weft", "train", "r.toml", "train.numerics", "=", "f"}), Words{"fast"});
  EXPECT_EQ(bash_offers({"weft", "train", "r.toml", "train.numerics=f"}), Words{"train.numerics=fast"});
  EXPECT_EQ(bash_offers({"weft", "train", "r.toml", "data.shuffle", "="}), (Words{"false", "true"}));
  EXPECT_EQ(bash_offers({"weft", "train", "r.toml", "train.seed", "="}), Words{});
}

TEST(BashCompletion, OffersFilesWhereFilesGo) {
  const TempDir dir;
  spill(dir / "recipe.toml", "");
  spill(dir / "other.txt", "");
  const std::string folder = dir.path().string();
  EXPECT_EQ(bash_offers({"weft", "train", "rec"}, folder), Words{"recipe.toml"});
  EXPECT_EQ(bash_offers({"weft", "bench", "step", "rec"}, folder), Words{"recipe.toml"});
  EXPECT_EQ(bash_offers({"weft", "train", "r.toml", "data.train", "=", "oth"}, folder), Words{"other.txt"});
  EXPECT_EQ(bash_offers({"weft", "eval", "m", "a.txt", "oth"}, folder), Words{"other.txt"});
}

TEST(ZshCompletion, IsAValidScript) {
  if (!has_shell("zsh")) GTEST_SKIP() << "needs zsh";
  const TempDir dir;
  spill(dir / "_weft", weft({"completion", "zsh"}).out);
  const Finished f = run({.args = {"-n", (dir / "_weft").string()}, .program = "zsh"});
  EXPECT_EQ(f.status, 0) << f.err;
}

Words fish_offers(const std::string& line) {
  const TempDir dir;
  spill(dir / "weft.fish", weft({"completion", "fish"}).out);
  const Finished f =
      run({.args = {"--no-config", "-c", "source " + (dir / "weft.fish").string() + "; complete -C " + quoted(line)},
           .program = "fish"});
  EXPECT_EQ(f.err, "");
  Words words;
  for (const auto& one : sorted_lines_of(f.out)) words.push_back(one.substr(0, one.find('\t')));
  return words;
}

TEST(FishCompletion, OffersCommandsOptionsAndRecipeKeys) {
  if (!has_shell("fish")) GTEST_SKIP() << "needs fish";
  EXPECT_EQ(fish_offers("weft tr"), Words{"train"});
  EXPECT_EQ(fish_offers("weft plan --sch"), (Words{"--schedule", "--schedule-svg"}));
  EXPECT_EQ(fish_offers("weft train r.toml train.numerics="),
            (Words{"train.numerics=fast", "train.numerics=invariant"}));
  EXPECT_EQ(fish_offers("weft generate m --backend "), (Words{"auto", "cpu", "cuda", "ref"}));
}

}  // namespace
}  // namespace weft
