#include "weft/tokenize/merges.h"

#include <gtest/gtest.h>

#include "weft/base/rng.h"

namespace weft {
namespace {

// As the definition says: the least rank, of these the leftmost, one after the other.
std::vector<int32_t> merged_by_definition(const MergeTable& table, std::vector<int32_t> ids) {
  while (true) {
    MergeTable::Merge best;
    size_t where = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      if (const auto m = table.find(ids[i], ids[i + 1]); m.rank < best.rank) {
        best = m;
        where = i;
      }
    if (best.rank == MergeTable::kNever) return ids;
    ids[where] = best.result;
    ids.erase(ids.begin() + ptrdiff_t(where) + 1);
  }
}

// Ranks repeat and do not rise with the results: harder than those of any tokenizer.
TEST(MergeAll, IsTheDefinitionForShortAndLongPieces) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    MergeTable table(4);
    const uint32_t symbols = 2 + random_bits(seed, 0) % 3;
    for (uint32_t n = 0; n < 12; ++n) {
      const auto bits = [&](uint32_t k) { return random_bits(seed, 100 + 4 * n + k); };
      table.add(int32_t(bits(0) % (symbols + n)), int32_t(bits(1) % (symbols + n)),
                {.rank = bits(2) % 6, .result = int32_t(symbols + n)});
    }
    for (const size_t length : {1, 2, 7, 60, 97, 300}) {
      std::vector<int32_t> ids;
      for (size_t i = 0; i < length; ++i) ids.push_back(int32_t(random_bits(seed, 1000 + i) % symbols));
      const auto expected = merged_by_definition(table, ids);
      ids.resize(merge_all(table, ids));
      ASSERT_EQ(ids, expected) << seed << " " << length;
    }
  }
}

TEST(MergeTable, FindsWhatWasAdded) {
  MergeTable table(1);
  for (int32_t i = 0; i < 3000; ++i) table.add(i, 3 * i, {.rank = uint32_t(i), .result = i + 1});
  table.add(7, 21, {.rank = 0, .result = 0});  // the first one stays
  EXPECT_EQ(table.size(), 3000u);
  for (int32_t i = 0; i < 3000; ++i) ASSERT_EQ(table.find(i, 3 * i).result, i + 1);
  EXPECT_EQ(table.find(1, 2).rank, MergeTable::kNever);
}

}  // namespace
}  // namespace weft
