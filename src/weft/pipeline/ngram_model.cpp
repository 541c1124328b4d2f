#include "weft/pipeline/ngram_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/mapped_file.h"
#include "weft/data/token_writer.h"
#include "weft/pipeline/rule.h"

namespace weft {
namespace {

constexpr std::string_view kMagic = "WEFTNGR1";
constexpr size_t kHeader = 16, kEntry = 12;  // magic, u32 order, u32 0; u64 key, u32 count

// Of the last `size` bytes of `history`, in which the last byte is the lowest.
uint64_t key_of(uint64_t history, size_t size) {
  return (history & ((uint64_t{1} << (8 * size)) - 1)) | uint64_t(size) << 56;
}
size_t size_of(uint64_t key) { return key >> 56; }
uint64_t context_of(uint64_t key) {
  const uint64_t bytes = (key & 0x00ff'ffff'ffff'ffffu) >> 8;
  return bytes | uint64_t(size_of(key) - 1) << 56;
}

template <class T>
T get(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

class Perplexity final : public Rule {
 public:
  explicit Perplexity(const PerplexityConfig& config) : c_(config), model_(NgramModel::read(config.model)) {}
  std::optional<Drop> judge(Document& d, std::map<std::string, int64_t>&) const override {
    const double value = model_.perplexity(d.text);
    const std::string detail = fmt::format("{:.3f}", value);
    if (value < c_.min) return Drop{"perplexity.min", detail};
    if (c_.max > 0 && value > c_.max) return Drop{"perplexity.max", detail};
    return {};
  }

 private:
  PerplexityConfig c_;
  NgramModel model_;
};

}  // namespace

void NgramModel::Table::reserve(size_t num_entries) {
  size_t slots = keys_.size();
  while (slots < 2 * num_entries) slots *= 2;
  if (slots > keys_.size()) grow(slots);
}

NgramModel::Entry& NgramModel::Table::operator[](uint64_t key) {
  size_t i = slot_of(key);
  if (keys_[i] == key) return entries_[i];
  if (2 * ++size_ > keys_.size()) {
    grow(2 * keys_.size());
    i = slot_of(key);
  }
  keys_[i] = key;
  return entries_[i] = {};
}

void NgramModel::Table::grow(size_t slots) {
  std::vector<uint64_t> keys(slots, kFree);
  std::vector<Entry> entries(slots);
  keys.swap(keys_);
  entries.swap(entries_);
  shift_ = 64 - std::countr_zero(slots);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == kFree) continue;
    const size_t to = slot_of(keys[i]);
    keys_[to] = keys[i];
    entries_[to] = entries[i];
  }
}

void NgramModel::learn(std::string_view text) {
  uint64_t history = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    history = history << 8 | uint8_t(text[i]);
    for (size_t n = 1; n <= size_t(order_) && n <= i + 1; ++n) {
      Entry& e = entries_[key_of(history, n)];
      e.count += e.count < UINT32_MAX;
    }
  }
}

void NgramModel::finish() {
  Table kept;
  entries_.for_each([&](uint64_t key, const Entry& e) {
    if (size_of(key) < 4 || e.count >= 2) kept[key] = e;
  });
  entries_ = std::move(kept);
  sum_up();
}

void NgramModel::sum_up() {
  std::vector<std::pair<uint64_t, uint32_t>> all;
  entries_.for_each([&](uint64_t key, Entry& e) {
    e.total = e.next = 0;
    if (e.count > 0) all.emplace_back(key, e.count);  // else a context alone
  });
  for (const auto& e : all) {
    Entry& context = entries_[context_of(e.first)];
    context.total += e.second;
    ++context.next;
  }
}

double NgramModel::perplexity(std::string_view text) const {
  constexpr size_t kMost = 1 << 16, kAhead = 6;
  text = text.substr(0, kMost);
  if (text.empty()) return 1;
  const auto order = size_t(order_);
  const Entry* contexts[kMostOrder + 1] = {};  // of n bytes before this one; null: and of all that are longer
  const Entry* found[kMostOrder + 1];          // with this byte, which are the next one's contexts
  contexts[0] = found[0] = entries_.find(key_of(0, 0));
  uint64_t history = 0, ahead = 0;
  double bits = 0;
  for (size_t i = 0; i < text.size() + kAhead; ++i) {
    // Most of the time goes into waiting for memory: what is asked for later is called for now.
    ahead = ahead << 8 | (i < text.size() ? uint8_t(text[i]) : 0);
    for (size_t n = 1; n <= order; ++n) entries_.prefetch(key_of(ahead, n));
    if (i < kAhead) continue;
    history = history << 8 | uint8_t(text[i - kAhead]);
    double p = 1.0 / 256;
    size_t n = 0;
    for (; n < order && contexts[n] != nullptr && contexts[n]->next > 0; ++n) {
      const Entry* whole = found[n + 1] = entries_.find(key_of(history, n + 1));
      const double count = whole == nullptr ? 0 : whole->count, next = contexts[n]->next;
      p = (count + next * p) / (double(contexts[n]->total) + next);
    }
    std::fill(found + n + 1, found + order + 1, nullptr);
    std::copy(found, found + order + 1, contexts);
    bits -= std::log2(p);
  }
  return std::exp2(bits / double(text.size()));
}

void NgramModel::write(const std::filesystem::path& file) const {
  std::vector<std::pair<uint64_t, uint32_t>> all;
  entries_.for_each([&](uint64_t key, const Entry& e) {
    if (e.count > 0) all.emplace_back(key, e.count);
  });
  std::sort(all.begin(), all.end());
  std::string bytes(kMagic);
  put(bytes, uint32_t(order_));
  put(bytes, uint32_t(0));
  for (const auto& e : all) {
    put(bytes, e.first);
    put(bytes, e.second);
  }
  WholeFile out(file);
  out.write(bytes);
  out.commit();
}

NgramModel NgramModel::read(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  const std::string_view bytes = mapped.text();
  const auto fail = [&](const char* why) {
    throw FileError(fmt::format("{}: no n-gram model: {}; `weft data train-ngram` makes one", file.string(), why));
  };
  if (bytes.size() < kHeader || !bytes.starts_with(kMagic)) fail("it begins otherwise");
  const auto order = get<uint32_t>(bytes, kMagic.size());
  if (order < 1 || order > uint32_t(kMostOrder)) fail("its order is none");
  if ((bytes.size() - kHeader) % kEntry != 0) fail("it is cut short");
  NgramModel model{int(order)};
  model.entries_.reserve((bytes.size() - kHeader) / kEntry);
  for (size_t at = kHeader; at < bytes.size(); at += kEntry) {
    const auto key = get<uint64_t>(bytes, at);
    if (size_of(key) < 1 || size_of(key) > order) fail("a sequence in it is too long");
    model.entries_[key].count = get<uint32_t>(bytes, at + 8);
  }
  model.sum_up();
  return model;
}

std::unique_ptr<Rule> make_perplexity_rule(const PerplexityConfig& config) {
  return std::make_unique<Perplexity>(config);
}

}  // namespace weft
