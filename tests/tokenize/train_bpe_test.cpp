#include "weft/tokenize/train_bpe.h"

#include <map>

#include "tokenize/tokenize_support.h"
#include "weft/base/rng.h"

namespace weft {
namespace {

using Words = std::map<std::vector<std::string>, int64_t>;
using Pair = std::pair<std::string, std::string>;

const Splitter::Rules kRules = *Splitter::rules_named("r50k");

// As the definition says, counting all pairs again for each merge.
std::vector<Pair> merges_by_definition(const PieceCounts& pieces, size_t number) {
  Words words;
  for (const auto& [piece, count] : pieces.counts()) {
    std::vector<std::string> bytes;
    for (char c : piece) bytes.emplace_back(1, c);
    words[bytes] += count;
  }
  std::vector<Pair> merges;
  while (merges.size() < number) {
    std::map<Pair, int64_t> counts;
    for (const auto& [word, count] : words)
      for (size_t i = 0; i + 1 < word.size(); ++i) counts[{word[i], word[i + 1]}] += count;
    if (counts.empty()) break;
    const Pair best = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                        return std::tie(a.second, a.first) < std::tie(b.second, b.first);
                      })->first;
    merges.push_back(best);
    Words merged;
    for (const auto& [word, count] : words) {
      std::vector<std::string> after;
      for (size_t i = 0; i < word.size(); ++i) {
        const bool merges_here = i + 1 < word.size() && Pair(word[i], word[i + 1]) == best;
        after.push_back(merges_here ? word[i] + word[i + 1] : word[i]);
        i += merges_here;
      }
      merged[after] += count;
    }
    words = merged;
  }
  return merges;
}

std::vector<Pair> merges_of(const LearnedMerges& learned) {
  std::vector<Pair> merges;
  for (const auto& m : learned.merges) merges.emplace_back(m.left, m.right);
  return merges;
}

TEST(LearnMerges, IsTheDefinition) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::string text;
    for (uint32_t i = 0; i < 400; ++i) text += "aabbc   "[random_bits(seed, i) % 8];
    PieceCounts pieces(kRules, {});
    pieces.add(text, 1);
    EXPECT_EQ(merges_of(learn_merges(pieces, 60, {})), merges_by_definition(pieces, 60)) << seed;
  }
}

TEST(LearnMerges, EndsWhereNothingIsLeftToMerge) {
  PieceCounts pieces(kRules, {});
  pieces.add("abc abc", 1);
  EXPECT_EQ(learn_merges(pieces, 1000, {}).merges.size(), 3u);  // bc, abc, " abc"
}

TEST(PieceCounts, DoNotDependOnThreads) {
  std::string text;
  for (uint32_t i = 0; text.size() < 9 << 20; ++i) text += "w" + std::to_string(random_bits(3, i) % 5000) + " word\n";
  PieceCounts one(kRules, {"<|end|>"}), three(kRules, {"<|end|>"});
  one.add(text, 1);
  three.add(text, 3);
  EXPECT_EQ(one.counts(), three.counts());
}

TEST(PieceCounts, LeaveOutSpecialTokens) {
  PieceCounts pieces(kRules, {"<|end|>"});
  pieces.add("ab<|end|>cd", 1);
  EXPECT_EQ(pieces.counts(), (PieceCounts::Map{{"ab", 1}, {"cd", 1}}));
}

TEST(LearnedTokenizer, EncodesWhatItLearnedFrom) {
  for (const char* pattern : {"r50k", "o200k"}) {
    const auto rules = *Splitter::rules_named(pattern);
    PieceCounts pieces(rules, {"<|end|>"});
    pieces.add("low lower lowest low low newer", 1);
    const auto json = learned_tokenizer(learn_merges(pieces, 20, {}), rules, {"<|end|>"});
    const auto t = testing::tokenizer_of(json.dump());
    const auto ids = testing::ids_of(*t, " low<|end|>", SpecialText::kParsed);
    EXPECT_EQ(ids.size(), 2u);
    EXPECT_EQ(ids.back(), 0);
    EXPECT_EQ(testing::text_of(*t, testing::ids_of(*t, "low n\xc3\xa9wer")), "low n\xc3\xa9wer");
  }
}

TEST(LearnedTokenizer, HasTheMergesAndIdsOfTheReference) {
  WEFT_NEEDS_SHARED();
  const auto folder = testing::shared_dir() / "data/tokenizers/train_bpe";
  PieceCounts pieces(kRules, {"<|endoftext|>"});
  pieces.add(testing::slurp(folder / "corpus.en"), 2);
  const auto json = learned_tokenizer(learn_merges(pieces, 243, {}), kRules, {"<|endoftext|>"});
  EXPECT_EQ(json["model"]["vocab"], nlohmann::json::parse(testing::slurp(folder / "train-bpe-reference-vocab.json")));
  std::string merges;
  for (const auto& m : json["model"]["merges"])
    merges += m[0].get<std::string>() + " " + m[1].get<std::string>() + "\n";
  std::string expected = testing::slurp(folder / "train-bpe-reference-merges.txt");
  if (!expected.ends_with('\n')) expected += '\n';
  EXPECT_EQ(merges, expected);
}

}  // namespace
}  // namespace weft
