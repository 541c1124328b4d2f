#include "weft/data/data_stream.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "weft/base/error.h"
#include "weft/base/rng.h"
#include "weft/data/text_tokens.h"
#include "weft/data/tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlock = 1024;  // samples in which each source has exactly its share, to 1 / kBlock
constexpr int kRounds = 6;

std::unique_ptr<TokenSource> open_tokens(const std::string& path, const DataSpec& spec) {
  const bool pair = is_megatron(path);
  if (!pair && fs::is_directory(path)) { throw FileError(fmt::format("{}: is a folder; name the files in it", path)); }
  if (!pair && !fs::exists(path)) throw FileError(fmt::format("{}: no such file", path));
  const std::string extension = fs::path(path).extension().string();
  if (extension != ".txt" && pair) return open_megatron_tokens(path, spec.vocab_size);
  if (extension == ".idx") throw FileError(fmt::format("{}: its .bin file is missing", path));
  if (extension == ".bin") return open_raw_tokens(path, spec.dtype, spec.vocab_size);
  const auto tokenizer = open_tokenizer(spec.tokenizer, spec.model_folder, spec.vocab_size);
  const TextTokens ids =
      tokenize_once({.text = path, .tokenizer = *tokenizer, .text_key = spec.text_key, .cache_dir = spec.cache_dir});
  return open_raw_tokens(ids.file, ids.dtype, spec.vocab_size);
}

int64_t held_out(int64_t samples, double fraction) {
  if (fraction <= 0) return 0;
  return std::clamp<int64_t>(int64_t(std::floor(double(samples) * fraction)), 1, samples);
}

}  // namespace

std::vector<OpenSource> open_sources(const DataSpec& spec) {
  if (!spec.loss_mask.empty() && spec.paths.size() != 1) {
    throw ConfigError(fmt::format("data.loss_mask belongs to one token file, but there are {}", spec.paths.size()));
  }
  std::vector<OpenSource> sources;
  for (const std::string& path : spec.paths) {
    OpenSource s{.tokens = open_tokens(path, spec), .mask = nullptr};
    if (!spec.loss_mask.empty()) s.mask = open_loss_mask(spec.loss_mask, *s.tokens);
    const int64_t samples = (s.tokens->size() - 1) / spec.seq_length;
    s.num_samples = samples - held_out(samples, spec.valid_fraction);
    if (spec.part == DataSpec::Part::train && s.num_samples < 1) {
      throw FileError(
          fmt::format("{}: {} tokens give no training sample of {} and its next token{}; use more text, or a shorter "
                      "train.seq_length",
                      path, s.tokens->size(), spec.seq_length, samples > 0 ? " beside those held out" : ""));
    }
    sources.push_back(std::move(s));
  }
  return sources;
}

Permutation::Permutation(uint64_t key, int64_t n)
    : key_(key), n_(n), half_bits_(std::max(1, (int(std::bit_width(uint64_t(n - 1))) + 1) / 2)) {}

int64_t Permutation::operator()(int64_t i) const {
  const uint64_t mask = (uint64_t(1) << half_bits_) - 1;
  uint64_t x = uint64_t(i);
  do {
    uint64_t left = x >> half_bits_, right = x & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (rng_key(rng_key(key_, uint64_t(round)), right) & mask);
      left = right;
      right = mixed;
    }
    x = left << half_bits_ | right;
  } while (x >= uint64_t(n_));
  return int64_t(x);
}

DataStream::DataStream(const DataSpec& spec)
    : sources_(open_sources(spec)), seq_length_(spec.seq_length), seed_(spec.seed), shuffle_(spec.shuffle) {
  int64_t all = 0;
  fingerprint_ = fmt::format("S={} seed={} shuffle={} valid={}", seq_length_, seed_, shuffle_, spec.valid_fraction);
  for (const OpenSource& s : sources_) {
    ends_.push_back(all += s.num_samples);
    fingerprint_ += " " + s.tokens->fingerprint();
  }
  if (spec.weights.empty()) return;
  double total = 0;
  for (double w : spec.weights) total += w, fingerprint_ += fmt::format(" w={}", w);
  if (total <= 0) throw ConfigError("data.weights are all 0");
  // The source that is furthest behind its share takes the next slot.
  quotas_.assign(sources_.size(), 0);
  for (int64_t j = 0; j < kBlock; ++j) {
    const auto behind = [&](size_t s) { return spec.weights[s] / total * double(j + 1) - double(quotas_[s]); };
    size_t next = 0;
    for (size_t s = 1; s < sources_.size(); ++s)
      if (behind(s) > behind(next)) next = s;
    block_.push_back({next, quotas_[next]++});
  }
}

int64_t DataStream::samples_per_epoch() const { return ends_.back(); }

// Sample `index` of an endless walk over n samples, each once per epoch.
int64_t DataStream::order(size_t source, int64_t index, int64_t n) const {
  const int64_t epoch = index / n, at = index % n;
  if (!shuffle_) return at;
  return Permutation(rng_key(rng_key(rng_key(seed_, "data order"), uint64_t(source)), uint64_t(epoch)), n)(at);
}

DataStream::Place DataStream::weighted(int64_t k) const {
  const Slot& slot = block_[size_t(k % kBlock)];
  const int64_t index = k / kBlock * quotas_[slot.source] + slot.before;
  return {slot.source, order(slot.source, index, sources_[slot.source].num_samples)};
}

DataStream::Place DataStream::place_of(int64_t k) const {
  WEFT_CHECK(k >= 0, "sample {}", k);
  if (!block_.empty()) return weighted(k);
  const int64_t at = order(0, k, ends_.back());
  const size_t source = size_t(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
  return {source, source == 0 ? at : at - ends_[source - 1]};
}

void DataStream::read(int64_t k, std::span<int32_t> ids, std::span<int32_t> targets, std::span<uint8_t> counted) const {
  const Place at = place_of(k);
  const OpenSource& s = sources_[at.source];
  s.tokens->read(at.sample * seq_length_, ids);
  s.tokens->read(at.sample * seq_length_ + 1, targets);
  if (s.mask)
    s.mask->read(at.sample * seq_length_, counted);
  else
    std::fill(counted.begin(), counted.end(), uint8_t(1));
}

int64_t DataStream::counted_targets(int64_t k) const {
  const Place at = place_of(k);
  const OpenSource& s = sources_[at.source];
  if (!s.mask) return seq_length_;
  int64_t n = 0;
  std::array<uint8_t, 4096> piece;
  for (int64_t j = 0; j < seq_length_; j += int64_t(piece.size())) {
    const std::span<uint8_t> part(piece.data(), size_t(std::min<int64_t>(int64_t(piece.size()), seq_length_ - j)));
    s.mask->read(at.sample * seq_length_ + j, part);
    n += std::count(part.begin(), part.end(), uint8_t(1));
  }
  return n;
}

std::unique_ptr<DataStream> open_data_stream(const DataSpec& spec) { return std::make_unique<DataStream>(spec); }

}  // namespace weft
