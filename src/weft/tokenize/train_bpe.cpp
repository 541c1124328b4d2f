#include "weft/tokenize/train_bpe.h"

#include <algorithm>
#include <mutex>
#include <queue>

#include "weft/base/parallel.h"
#include "weft/tokenize/byte_alphabet.h"

namespace weft {
namespace {

std::vector<AddedToken> as_tokens(std::vector<std::string> names) {
  std::vector<AddedToken> tokens;
  for (auto& name : names)
    tokens.push_back({.id = int32_t(tokens.size()), .content = std::move(name), .special = true});
  return tokens;
}

constexpr size_t kDocumentPart = 1 << 22;  // bytes of a document that a thread takes at once

}  // namespace

PieceCounts::PieceCounts(Splitter::Rules rules, std::vector<std::string> specials)
    : splitter_(rules, make_character_table()), specials_(as_tokens(std::move(specials))) {}

void PieceCounts::add(std::string_view document, int num_threads) {
  bytes_ += int64_t(document.size());
  std::vector<std::string_view> parts;
  const bool may_cut = !specials_.may_cross(Splitter::always_splits);
  while (document.size() > kDocumentPart && may_cut) {
    size_t cut = kDocumentPart;
    while (cut < document.size() && !Splitter::always_splits(document[cut - 1], document[cut])) ++cut;
    parts.push_back(document.substr(0, cut));
    document.remove_prefix(cut);
  }
  if (!document.empty()) parts.push_back(document);
  if (parts.size() < 2) {
    for (const auto& part : parts) count(part, counts_);
    return;
  }
  std::mutex mutex;
  parallel_for(int64_t(parts.size()), num_threads, 1, [&](int64_t begin, int64_t end) {
    Map own;
    for (auto i = size_t(begin); i < size_t(end); ++i) count(parts[i], own);
    std::lock_guard lock(mutex);
    for (const auto& [piece, n] : own) counts_[piece] += n;
  });
}

void PieceCounts::count(std::string_view text, Map& counts) const {
  std::string copy;
  text = well_formed(text, copy);
  const auto count_part = [&](std::string_view part) {
    for (size_t at = 0; at < part.size();) {
      const size_t end = splitter_.end_of_piece(part, at);
      const std::string_view piece = part.substr(at, end - at);
      const auto known = counts.find(piece);
      ++(known != counts.end() ? known->second : counts[std::string(piece)]);
      at = end;
    }
  };
  specials_.split(text, true, {.text = count_part, .token = [](const AddedToken&) {}});
}

namespace {

// The state of learning: every different piece once, as its tokens by now.
class Learner {
 public:
  explicit Learner(const PieceCounts& pieces) {
    for (int b = 0; b < 256; ++b) tokens_.emplace_back(1, char(b));
    std::vector<std::pair<std::string_view, int64_t>> sorted(pieces.counts().begin(), pieces.counts().end());
    std::sort(sorted.begin(), sorted.end());  // so that nothing depends on the order of a hash table
    for (const auto& [piece, count] : sorted) {
      Word word{.tokens = {}, .count = count};
      for (unsigned char c : piece) word.tokens.push_back(c);
      words_.push_back(std::move(word));
    }
    for (uint32_t w = 0; w < words_.size(); ++w) change_pairs(w, +1, -1);
    for (uint32_t p = 0; p < pairs_.size(); ++p) queue_.push(candidate(p));
  }

  // The next merge; false: there is none.
  bool next(LearnedMerges::Merge& merge) {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const int64_t count = pairs_[top.pair].count;
      if (top.count > count && count > 0) queue_.push(candidate(top.pair));
      if (top.count != count || count == 0) continue;
      merge = {tokens_[size_t(pairs_[top.pair].left)], tokens_[size_t(pairs_[top.pair].right)]};
      apply(top.pair);
      return true;
    }
    return false;
  }
  int64_t num_tokens() const { return int64_t(tokens_.size()); }

 private:
  struct Word {
    std::vector<int32_t> tokens;
    int64_t count;
  };
  struct Pair {
    int32_t left, right;
    int64_t count = 0;
    std::vector<uint32_t> words;  // that may hold it
  };
  struct Candidate {
    int64_t count;
    uint32_t pair;
    const Learner* learner;
    bool operator<(const Candidate& other) const {
      if (count != other.count) return count < other.count;
      const Pair &a = learner->pairs_[pair], &b = other.learner->pairs_[other.pair];
      if (a.left != b.left) return learner->tokens_[size_t(a.left)] < learner->tokens_[size_t(b.left)];
      return learner->tokens_[size_t(a.right)] < learner->tokens_[size_t(b.right)];
    }
  };
  Candidate candidate(uint32_t pair) const { return {pairs_[pair].count, pair, this}; }

  uint32_t pair_of(int32_t left, int32_t right) {
    const uint64_t key = uint64_t(uint32_t(left)) << 32 | uint32_t(right);
    const auto [at, is_new] = index_.emplace(key, uint32_t(pairs_.size()));
    if (is_new) pairs_.push_back({.left = left, .right = right, .count = 0, .words = {}});
    return at->second;
  }

  // Adds a word's pairs, or takes them out. Those that hold `fresh` (-1: all) get the word into their lists.
  void change_pairs(uint32_t w, int sign, int32_t fresh) {
    const Word& word = words_[w];
    for (size_t i = 0; i + 1 < word.tokens.size(); ++i) {
      const uint32_t p = pair_of(word.tokens[i], word.tokens[i + 1]);
      Pair& pair = pairs_[p];
      pair.count += sign * word.count;
      const bool listed = fresh < 0 || pair.left == fresh || pair.right == fresh;
      if (sign < 0 || !listed) continue;
      if (pair.words.empty() || pair.words.back() != w) pair.words.push_back(w);
      if (fresh >= 0) grown_.push_back(p);
    }
  }

  void apply(uint32_t merged) {
    const int32_t left = pairs_[merged].left, right = pairs_[merged].right;
    const int32_t id = token_of(tokens_[size_t(left)] + tokens_[size_t(right)]);
    const std::vector<uint32_t> words = std::move(pairs_[merged].words);
    pairs_[merged].words.clear();
    grown_.clear();
    for (uint32_t w : words) {
      auto& tokens = words_[w].tokens;
      const auto holds = [&](size_t i) { return i + 1 < tokens.size() && tokens[i] == left && tokens[i + 1] == right; };
      size_t first = 0;
      while (first + 1 < tokens.size() && !holds(first)) ++first;
      if (!holds(first)) continue;
      change_pairs(w, -1, -1);
      size_t n = first;
      for (size_t i = first; i < tokens.size(); ++n) {
        const bool merges = holds(i);
        tokens[n] = merges ? id : tokens[i];
        i += merges ? 2 : 1;
      }
      tokens.resize(n);
      change_pairs(w, +1, id);
    }
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (uint32_t p : grown_)
      if (pairs_[p].count > 0) queue_.push(candidate(p));
  }

  // Two ways to the same bytes are one token.
  int32_t token_of(std::string bytes) {
    const auto [at, is_new] = ids_.emplace(bytes, int32_t(tokens_.size()));
    if (is_new) tokens_.push_back(std::move(bytes));
    return at->second;
  }

  std::vector<Word> words_;
  std::vector<Pair> pairs_;
  std::vector<std::string> tokens_;
  std::unordered_map<uint64_t, uint32_t> index_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<uint32_t> grown_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

LearnedMerges learn_merges(const PieceCounts& pieces, int64_t num_tokens,
                           const std::function<void(int64_t done)>& progress) {
  constexpr int64_t kReport = 1000;
  Learner learner(pieces);
  LearnedMerges learned;
  LearnedMerges::Merge merge;
  while (learner.num_tokens() < 256 + num_tokens && learner.next(merge)) {
    learned.merges.push_back(merge);
    if (progress && int64_t(learned.merges.size()) % kReport == 0) progress(int64_t(learned.merges.size()));
  }
  return learned;
}

nlohmann::json learned_tokenizer(const LearnedMerges& learned, Splitter::Rules rules,
                                 const std::vector<std::string>& specials) {
  using Json = nlohmann::json;
  const ByteAlphabet alphabet;
  Json added = Json::array(), vocab = Json::object(), merges = Json::array();
  const auto add = [&](const std::string& token) { vocab.emplace(token, vocab.size()); };
  for (const auto& name : specials) {
    added.push_back({{"id", vocab.size()},
                     {"content", name},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
    add(name);
  }
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) bytes.push_back(alphabet.to_text(std::string(1, char(b))));
  std::sort(bytes.begin(), bytes.end());  // UTF-8 sorts as its characters do
  for (const auto& b : bytes) add(b);
  for (const auto& [left, right] : learned.merges) {
    add(alphabet.to_text(left + right));
    merges.push_back({alphabet.to_text(left), alphabet.to_text(right)});
  }
  const Json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  Json split = byte_level;
  split["use_regex"] = rules.family == Splitter::Family::kGpt2;
  if (rules.family != Splitter::Family::kGpt2) {
    const Json pattern{{"Regex", Splitter::expression_of(rules)}};
    const Json first{{"type", "Split"}, {"pattern", pattern}, {"behavior", "Isolated"}, {"invert", false}};
    split = {{"type", "Sequence"}, {"pretokenizers", {first, split}}};
  }
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", nullptr},
          {"pre_tokenizer", std::move(split)},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", std::move(vocab)},
            {"merges", std::move(merges)}}}};
}

}  // namespace weft
