#include "weft/pipeline/ngram_model.h"

#include <algorithm>
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

uint64_t key_of(std::string_view bytes) {
  uint64_t key = 0;
  for (unsigned char c : bytes) key = key << 8 | c;
  return key | uint64_t(bytes.size()) << 56;
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

void NgramModel::learn(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i)
    for (size_t n = 1; n <= size_t(order_) && n <= i + 1; ++n) {
      Entry& e = entries_[key_of(text.substr(i + 1 - n, n))];
      e.count += e.count < UINT32_MAX;
    }
}

void NgramModel::finish() {
  std::erase_if(entries_, [](const auto& e) { return size_of(e.first) >= 4 && e.second.count < 2; });
  sum_up();
}

void NgramModel::sum_up() {
  for (auto& e : entries_) e.second.total = e.second.next = 0;
  std::vector<std::pair<uint64_t, uint32_t>> all;
  for (const auto& e : entries_) all.emplace_back(e.first, e.second.count);
  for (const auto& e : all) {
    if (e.second == 0) continue;  // a context alone
    Entry& context = entries_[context_of(e.first)];
    context.total += e.second;
    ++context.next;
  }
}

double NgramModel::perplexity(std::string_view text) const {
  constexpr size_t kMost = 1 << 16;
  text = text.substr(0, kMost);
  if (text.empty()) return 1;
  double bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    double p = 1.0 / 256;
    for (size_t n = 0; n < size_t(order_) && n <= i; ++n) {
      const auto context = entries_.find(key_of(text.substr(i - n, n)));
      if (context == entries_.end() || context->second.next == 0) break;
      const auto whole = entries_.find(key_of(text.substr(i - n, n + 1)));
      const double count = whole == entries_.end() ? 0 : whole->second.count, next = context->second.next;
      p = (count + next * p) / (double(context->second.total) + next);
    }
    bits -= std::log2(p);
  }
  return std::exp2(bits / double(text.size()));
}

void NgramModel::write(const std::filesystem::path& file) const {
  std::vector<std::pair<uint64_t, uint32_t>> all;
  for (const auto& e : entries_)
    if (e.second.count > 0) all.emplace_back(e.first, e.second.count);
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
