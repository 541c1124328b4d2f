// What is said of every key: in the terminal and in docs/formats/recipe.md.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "support.h"
#include "weft/recipe/recipe.h"

namespace weft {
namespace {

TEST(RecipeHelp, EveryKeySaysWhatItIs) {
  for (const KeyHelp& key : recipe_help()) {
    EXPECT_FALSE(key.help.empty()) << key.key;
    EXPECT_FALSE(key.expected.empty()) << key.key;
  }
}

TEST(RecipeHelp, TheReferenceFitsItsColumns) {
  for (int columns : {90, 120}) {
    std::istringstream text(recipe_reference(columns));
    int keys = 0;
    for (std::string line; std::getline(text, line);) {
      EXPECT_LE(line.size(), size_t(columns)) << line;
      keys += !line.empty() && line[0] != ' ' && line.find('.') < line.find(' ');
    }
    EXPECT_EQ(keys, int(recipe_help().size()));
  }
}

// The tables at the end of docs/formats/recipe.md are recipe_markdown(): put there what this test prints.
TEST(RecipeHelp, TheDocumentHasTheTablesOfTheKeys) {
  const std::string text = testing::slurp(std::filesystem::path(testing::kSourceDir) / "docs/formats/recipe.md");
  EXPECT_TRUE(text.ends_with("\n" + recipe_markdown())) << recipe_markdown();
}

}  // namespace
}  // namespace weft
