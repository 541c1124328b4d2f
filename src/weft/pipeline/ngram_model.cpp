#include "weft/pipeline/ngram_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/mapped_file.h"
#include "weft/pipeline/rule.h"

namespace weft {
namespace {

constexpr std::string_view kNgramMagic = "WEFTNGR1";
constexpr size_t kHeader = 16, kEntry = 12;  // magic, u32 order, u32 0; u64 key, u32 count

// The key of the last `size` bytes of `history`, whose last byte is the lowest.
uint64_t key_of(uint64_t history, size_t size) {
  return (history & ((uint64_t{1} << (8 * size)) - 1)) | uint64_t(size) << 56;
}
size_t size_of(uint64_t key) { return key >> 56; }
uint64_t context_of(uint64_t key) {
  const uint64_t bytes = (key & 0x00ff'ffff'ffff'ffffu) >> 8;
  return bytes | uint64_t(size_of(key) - 1) << 56;
}

// P of a byte that came `count` times after a context, where P after a shorter one is `p`.
template <class Entry>
double smoothed(double count, const Entry& context, double p) {
  if (context.next == 0) return p;
  const double next = context.next;
  return (count + next * p) / (double(context.total) + next);
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
  size_t places = heads_.size();
  while (places < 2 * num_entries) places *= 2;
  if (places > heads_.size()) grow(places);
}

NgramModel::Entry& NgramModel::Table::operator[](uint64_t key) {
  size_t i = place_of(key);
  if (heads_[i].key == key) return entries_[i];
  if (2 * ++size_ > heads_.size()) {
    grow(2 * heads_.size());
    i = place_of(key);
  }
  heads_[i].key = key;
  return entries_[i] = {};
}

void NgramModel::Table::grow(size_t places) {
  std::vector<Head> heads(places);
  std::vector<Entry> entries(places);
  heads.swap(heads_);
  entries.swap(entries_);
  shift_ = 64 - std::countr_zero(places);
  for (size_t i = 0; i < heads.size(); ++i) {
    if (heads[i].key == Head().key) continue;
    const size_t to = place_of(heads[i].key);
    heads_[to] = heads[i];
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
  entries_.for_each([&](const Table::Head& head, const Entry& e) {
    if (size_of(head.key) < 4 || e.count >= 2) kept[head.key] = e;
  });
  entries_ = std::move(kept);
  sum_up();
}

void NgramModel::sum_up() {
  std::vector<std::pair<uint64_t, uint32_t>> all;
  entries_.for_each([&](const Table::Head& head, Entry& e) {
    e.total = e.next = 0;
    if (e.count > 0) all.emplace_back(head.key, e.count);  // else a context alone
  });
  entries_[key_of(0, 0)].p = 1.0 / 256;  // before anything is known
  for (const auto& e : all) {
    Entry& context = entries_[context_of(e.first)];
    context.total += e.second;
    ++context.next;
  }
  for (size_t size = 1; size <= size_t(order_); ++size) set_probabilities(size);
}

void NgramModel::set_probabilities(size_t size) {
  entries_.for_each([&](Table::Head& head, Entry& e) {
    if (size_of(head.key) != size) return;
    const Table::Head* shorter = entries_.find(key_of(head.key, size - 1));
    const Table::Head* context = entries_.find(context_of(head.key));
    e.p = shorter == nullptr ? 1.0 / 256 : entries_.entry_of(*shorter).p;
    if (context != nullptr) e.p = smoothed(e.count, entries_.entry_of(*context), e.p);
    head.bits = -std::log2(e.p);
  });
}

double NgramModel::bits_of(uint64_t history, size_t& known) const {
  const size_t longest = std::min(known, size_t(order_) - 1);  // context
  const Table::Head* found = nullptr;
  size_t context = longest + 1;
  while (found == nullptr && context > 0) found = entries_.find(key_of(history, context--));
  known = found == nullptr ? 0 : context + 1;
  if (found != nullptr && context == longest) return found->bits;
  double p = found == nullptr ? 1.0 / 256 : entries_.entry_of(*found).p;
  if (found != nullptr) ++context;
  for (; context <= longest; ++context)  // in which this byte was never seen
    if (const Table::Head* c = entries_.find(key_of(history >> 8, context))) p = smoothed(0, entries_.entry_of(*c), p);
  return -std::log2(p);
}

double NgramModel::perplexity(std::string_view text) const {
  constexpr size_t kMost = 1 << 16, kAhead = 8;
  text = text.substr(0, kMost);
  if (text.empty()) return 1;
  uint64_t history = 0, ahead = 0;
  size_t known = 0;
  double bits = 0;
  for (size_t i = 0; i < text.size() + kAhead; ++i) {
    // Memory latency would dominate, so prefetch later entries now.
    ahead = ahead << 8 | (i < text.size() ? uint8_t(text[i]) : 0);
    for (int n = std::max(1, order_ - 1); n <= order_; ++n) entries_.prefetch(key_of(ahead, size_t(n)));
    if (i < kAhead) continue;
    history = history << 8 | uint8_t(text[i - kAhead]);
    bits += bits_of(history, known);
  }
  return std::exp2(bits / double(text.size()));
}

void NgramModel::write(const std::filesystem::path& file) const {
  std::vector<std::pair<uint64_t, uint32_t>> all;
  entries_.for_each([&](const Table::Head& head, const Entry& e) {
    if (e.count > 0) all.emplace_back(head.key, e.count);
  });
  std::sort(all.begin(), all.end());
  std::string bytes(kNgramMagic);
  put(bytes, uint32_t(order_));
  put(bytes, uint32_t(0));
  for (const auto& e : all) {
    put(bytes, e.first);
    put(bytes, e.second);
  }
  write_file_durably(file, bytes, kOwnName);
}

NgramModel NgramModel::read(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  const std::string_view bytes = mapped.text();
  const auto fail = [&](const char* why) {
    throw FileError(fmt::format("{}: no n-gram model: {}; `weft data train-ngram` makes one", file.string(), why));
  };
  if (bytes.size() < kHeader || !bytes.starts_with(kNgramMagic)) fail("it begins otherwise");
  const auto order = get<uint32_t>(bytes, kNgramMagic.size());
  if (order < 1 || order > uint32_t(kMostOrder)) fail("its order is none");
  if ((bytes.size() - kHeader) % kEntry != 0) fail("it is cut short");
  NgramModel model{int(order)};
  model.entries_.reserve((bytes.size() - kHeader) / kEntry);
  for (size_t at = kHeader; at < bytes.size(); at += kEntry) {
    const auto key = get<uint64_t>(bytes, at);
    if (size_of(key) < 1 || size_of(key) > order) fail("a sequence in it is too long");
    model.entries_[key].count = get<uint32_t>(bytes, at + 8);
  }
  mapped.check_whole();
  model.sum_up();
  return model;
}

std::unique_ptr<Rule> make_perplexity_rule(const PerplexityConfig& config) {
  return std::make_unique<Perplexity>(config);
}

}  // namespace weft
