#include "weft/tokenize/byte_trie.h"

#include <algorithm>
#include <string>

namespace weft {

class ByteTrie::Builder {
 public:
  using Keys = std::vector<std::pair<std::string_view, int32_t>>;
  Builder(const Keys& keys, std::vector<Unit>& units) : keys_(keys), units_(units) {
    add_block();
    units_[kRoot].parent = kRoot;  // its base is 0: byte 0 of it would be the root itself
    units_[kRoot].base = uint32_t(kBlock);
    add_block();
  }

  void run() {
    std::vector<Part> parts{{0, keys_.size(), 0, kRoot}};
    while (!parts.empty()) {
      Part p = parts.back();
      parts.pop_back();
      for (; p.begin < p.end && keys_[p.begin].first.size() == p.depth; ++p.begin)
        if (p.depth > 0) units_[p.node].value = keys_[p.begin].second;
      if (p.begin < p.end) add_children(p, parts);
    }
  }

 private:
  // Keys that begin alike, with the bytes up to a node.
  struct Part {
    size_t begin, end, depth;
    uint32_t node;
  };

  void add_children(const Part& p, std::vector<Part>& parts) {
    labels_.clear();
    begins_.clear();
    for (size_t k = p.begin; k < p.end; ++k) {
      const char label = keys_[k].first[p.depth];
      if (!labels_.empty() && labels_.back() == label) continue;
      labels_ += label;
      begins_.push_back(k);
    }
    begins_.push_back(p.end);
    const uint32_t base = place(labels_);
    units_[p.node].base = base;
    for (size_t c = 0; c < labels_.size(); ++c) {
      const uint32_t child = base ^ uint8_t(labels_[c]);
      units_[child].parent = p.node;
      --free_[child / kBlock];
      parts.push_back({begins_[c], begins_[c + 1], p.depth + 1, child});
    }
  }
  void add_block() {
    units_.resize(units_.size() + kBlock);
    free_.push_back(kBlock);
  }
  bool is_free(size_t unit) const { return units_[unit].parent == kFree; }

  // A base at which all labels have a free place.
  uint32_t place(const std::string& labels) {
    constexpr size_t kTries = 16;  // blocks that are looked into, from the first with room on
    const auto first = uint8_t(labels[0]);
    size_t tries = 0;
    for (size_t block = open_; block < free_.size() && tries < kTries; ++block) {
      if (free_[block] < labels.size()) continue;
      ++tries;
      for (size_t unit = block * kBlock; unit < (block + 1) * kBlock; ++unit) {
        if (!is_free(unit)) continue;
        const auto base = uint32_t(unit ^ first);
        const auto fits = [&](char label) { return is_free(base ^ uint8_t(label)); };
        if (std::all_of(labels.begin() + 1, labels.end(), fits)) return base;
      }
    }
    if (tries == kTries) ++open_;
    while (open_ < free_.size() && free_[open_] == 0) ++open_;
    add_block();
    return uint32_t(units_.size() - kBlock);
  }

  const Keys& keys_;
  std::vector<Unit>& units_;
  std::vector<size_t> free_{};  // units of each block that are
  size_t open_ = 1;             // blocks before it are as good as full
  std::string labels_;          // of one node's children
  std::vector<size_t> begins_;  // and where their keys begin
};

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> keys) {
  std::stable_sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Builder(keys, units_).run();
}

int32_t ByteTrie::find(std::string_view key) const {
  uint32_t node = kRoot;
  for (char byte : key)
    if (!step(node, byte)) return kNone;
  return key.empty() ? kNone : value(node);
}

int32_t ByteTrie::longest(std::string_view text, size_t& bytes) const {
  int32_t found = kNone;
  bytes = 0;
  uint32_t node = kRoot;
  for (size_t at = 0; at < text.size() && step(node, text[at]); ++at)
    if (value(node) != kNone) found = value(node), bytes = at + 1;
  return found;
}

}  // namespace weft
