#include "weft/tokenize/byte_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "weft/tokenize/best_path.h"
#include "weft/tokenize/pre_tokenizers.h"

namespace weft {
namespace {

TEST(ByteTrie, FindsWhatAMapFinds) {
  std::mt19937 random(1);
  std::map<std::string, int32_t> map;
  for (int i = 0; i < 5000; ++i) {
    std::string key(1 + random() % 6, 'x');
    for (char& c : key) c = char(random() % (i % 2 == 0 ? 3 : 256));
    map.emplace(key, i);
  }
  const ByteTrie trie({map.begin(), map.end()});
  for (int i = 0; i < 20000; ++i) {
    std::string text(1 + random() % 8, 'x');
    for (char& c : text) c = char(random() % (i % 2 == 0 ? 3 : 256));
    const auto found = map.find(text);
    ASSERT_EQ(trie.find(text), found == map.end() ? ByteTrie::kNone : found->second);
    size_t bytes = 0, expected = text.size();
    while (expected > 0 && map.count(text.substr(0, expected)) == 0) --expected;
    const int32_t value = trie.longest(text, bytes);
    ASSERT_EQ(bytes, expected);
    ASSERT_EQ(value, expected == 0 ? ByteTrie::kNone : map.at(text.substr(0, expected)));
  }
}

TEST(ByteTrie, WithoutKeysFindsNothing) {
  size_t bytes = 1;
  EXPECT_EQ(ByteTrie().longest("abc", bytes), ByteTrie::kNone);
  EXPECT_EQ(bytes, 0u);
  EXPECT_EQ(ByteTrie({{"", 3}}).find(""), ByteTrie::kNone);
  EXPECT_EQ(ByteTrie({{std::string_view("\0\0", 2), 7}}).find({"\0\0", 2}), 7);
}

// A token over nearly all of a text: as long as that may be taken, all of the text is open.
TEST(BestPath, OfAHugeTextGivesUpItsMemoryAtTheEnd) {
  const std::map<std::string, int32_t> keys{{"a", 0}, {"b" + std::string(300000, 'a'), 1}};
  const ByteTrie tokens({keys.begin(), keys.end()});
  BestPathSpace<double> space;
  const auto ids_of = [&](const std::string& text) {
    std::vector<int32_t> ids;
    const auto score = [](int32_t, size_t) { return -1.0; };
    const auto take = [&](size_t, size_t, int32_t id) { ids.push_back(id); };
    BestPath<double, decltype(score), decltype(take)>(text, tokens, {2, -10}, score, take, space).run();
    return ids;
  };
  EXPECT_EQ(ids_of("b" + std::string(300001, 'a')), (std::vector<int32_t>{1, 0}));
  EXPECT_LE(space.steps.capacity(), size_t{1} << 18);
  EXPECT_EQ(ids_of("aa"), (std::vector<int32_t>{0, 0}));
}

TEST(Pieces, OfAHugeTextGiveUpTheirMemory) {
  Pieces pieces;
  pieces.list.reserve(3 << 20);
  pieces.matches.reserve(3 << 20);
  pieces.clear();
  EXPECT_LE(pieces.list.capacity() + pieces.matches.capacity(), size_t{2} << 20);
}

}  // namespace
}  // namespace weft
