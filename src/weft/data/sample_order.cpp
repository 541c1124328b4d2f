#include "weft/data/sample_order.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/rng.h"

namespace weft {

EvalWindows::EvalWindows(const DataSpec& given) : seq_length_(given.seq_length) {
  DataSpec spec = given;
  spec.part = DataSpec::Part::valid;
  sources_ = open_sources(spec);
  int64_t windows = 0;
  for (const size_t end : ends_of_sources(spec)) {
    const size_t first = ends_.size();
    const int64_t before = windows;
    for (size_t s = first; s < end; ++s) {
      const bool nothing_is_held_out = spec.valid_fraction > 0 && sources_[s].num_samples == 0;
      const int64_t here = sources_[s].packing->num_windows() - sources_[s].first_sample;
      ends_.push_back(windows += nothing_is_held_out ? 0 : std::max<int64_t>(0, here));
    }
    if (windows == before)
      throw FileError(fmt::format("{}: {} tokens give nothing to measure in windows of {}{}", spec.paths[first],
                                  sources_[first].tokens->size(), seq_length_,
                                  spec.valid_fraction > 0 ? " beside what is trained on" : ""));
  }
}

void EvalWindows::read(int64_t window, const SampleRows& to) const {
  WEFT_CHECK(window >= 0 && window < num_windows(), "window {} of {}", window, num_windows());
  check_lengths(to, seq_length_);
  const size_t i = size_t(std::upper_bound(ends_.begin(), ends_.end(), window) - ends_.begin());
  sources_[i].read(sources_[i].first_sample + window - (i == 0 ? 0 : ends_[i - 1]), to);
}

std::unique_ptr<EvalWindows> open_eval_windows(const DataSpec& spec) { return std::make_unique<EvalWindows>(spec); }

namespace {

constexpr uint64_t kWhole = uint64_t(1) << 63;

// floor(k * share), exact: how many of the first k samples go left.
int64_t left_of(int64_t k, uint64_t share) { return int64_t((static_cast<unsigned __int128>(k) * share) >> 63); }

double sum(const std::vector<double>& weights, size_t first, size_t last) {
  return std::accumulate(weights.begin() + std::ptrdiff_t(first), weights.begin() + std::ptrdiff_t(last), 0.0);
}

}  // namespace

Mixture::Mixture(const std::vector<double>& weights) {
  for (double w : weights)
    if (!std::isfinite(w) || w < 0) throw ConfigError(fmt::format("data.weights: {} is no share", w));
  const double all = sum(weights, 0, weights.size());
  if (!std::isfinite(all) || all <= 0)
    throw ConfigError(fmt::format("data.weights add up to {}: none of the sources would be read", all));
  nodes_.reserve(2 * weights.size() - 1);
  split(weights, 0, weights.size());
}

// Appends the tree over sources [first, last).
size_t Mixture::split(const std::vector<double>& weights, size_t first, size_t last) {
  const size_t node = nodes_.size(), middle = first + (last - first + 1) / 2;
  nodes_.push_back({first, last, middle, 0});
  if (last - first == 1) return node;
  const double left = sum(weights, first, middle), right = sum(weights, middle, last);
  // A source of weight 0 is never read; where both halves are 0, this node is not reached.
  const double share = left + right > 0 ? left / (left + right) : 0;
  nodes_[node].left = right == 0 ? kWhole : uint64_t(std::ldexp(share, 63));
  split(weights, first, middle);
  split(weights, middle, last);
  return node;
}

Mixture::Turn Mixture::operator()(int64_t sample) const {
  int64_t k = sample;
  size_t at = 0;
  while (nodes_[at].last - nodes_[at].first > 1) {
    const Node& n = nodes_[at];
    const int64_t before = left_of(k, n.left);
    const bool goes_left = left_of(k + 1, n.left) > before;
    k = goes_left ? before : k - before;
    at += goes_left ? 1 : 2 * (n.middle - n.first);
  }
  return {nodes_[at].first, k};
}

std::vector<int64_t> Mixture::dealt(int64_t n) const {
  std::vector<int64_t> counts(nodes_[0].last);
  std::vector<std::pair<size_t, int64_t>> open = {{0, n}};
  while (!open.empty()) {
    const auto [at, k] = open.back();
    const Node& node = nodes_[at];
    open.pop_back();
    if (node.last - node.first == 1) {
      counts[node.first] = k;
      continue;
    }
    const int64_t left = left_of(k, node.left);
    open.emplace_back(at + 1, left);
    open.emplace_back(at + 2 * (node.middle - node.first), k - left);
  }
  return counts;
}

namespace {

constexpr int kRounds = 6;

}  // namespace

Permutation::Permutation(uint64_t key, int64_t n)
    : key_(key), n_(n), half_bits_(std::max(1, (int(std::bit_width(uint64_t(n - 1))) + 1) / 2)) {
  WEFT_CHECK(n > 0, "a permutation of {}", n);
}

int64_t Permutation::operator()(int64_t i) const {
  WEFT_CHECK(i >= 0 && i < n_, "{} of {}", i, n_);
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

SampleOrder::SampleOrder(const DataSpec& spec)
    : sources_(open_sources(spec)), seq_length_(spec.seq_length), seed_(spec.seed), shuffle_(spec.shuffle) {
  require_samples(sources_, spec);
  const char* part = spec.part == DataSpec::Part::valid ? "valid" : "train";
  fingerprint_ =
      fmt::format("S={} seed={} shuffle={} valid={} part={}", seq_length_, seed_, shuffle_, spec.valid_fraction, part);
  // Defaults are left out, so that runs from before these settings can be resumed.
  if (spec.packing == PackingKind::first_fit) fingerprint_ += " packing=first-fit";
  if (spec.documents_apart) fingerprint_ += " documents=apart";
  if (spec.packing == PackingKind::first_fit) packing_ = " packing=first-fit";
  order_ = fingerprint_;
  int64_t all = 0;
  for (const OpenSource& s : sources_) {
    ends_.push_back(all += s.num_samples);
    order_ += fmt::format(" {}+{}", s.first_sample, s.num_samples);
    contents_.push_back(spec.fingerprint ? s.contents() : "");
    fingerprint_ += " " + contents_.back();
  }
  begun_ = spec.begun;
  begun_.resize(spec.weights.empty() ? 1 : spec.weights.size());
  if (std::any_of(begun_.begin(), begun_.end(), [](int64_t n) { return n > 0; })) {
    const std::string behind = fmt::format(" begun={}", fmt::join(begun_, ","));
    fingerprint_ += behind;
    order_ += behind;
  }
  if (spec.weights.empty()) {
    group_ends_ = {all};
    shares_ = {1};
    return;
  }
  const double sum = std::accumulate(spec.weights.begin(), spec.weights.end(), 0.0);
  for (const double weight : spec.weights) shares_.push_back(weight / sum);
  mixture_.emplace(spec.weights);
  size_t file = 0;
  for (const size_t end : ends_of_sources(spec)) {
    std::string group = fmt::format(" w={}", spec.weights[group_ends_.size()]);
    if (end - file > 1) group += fmt::format(" files={}", end - file);
    fingerprint_ += group;
    order_ += group;
    group_ends_.push_back(ends_[end - 1]);
    file = end;
  }
}

int64_t SampleOrder::samples_per_epoch() const { return ends_.back(); }

SampleOrder::Walked SampleOrder::walked_most(double drawn) const {
  Walked most{.times = -1, .samples = 0, .file = "", .is_all = group_ends_.size() == 1};
  for (size_t g = 0; g < group_ends_.size(); ++g) {
    const int64_t begin = g == 0 ? 0 : group_ends_[g - 1], n = group_ends_[g] - begin;
    const double times = n > 0 ? shares_[g] * drawn / double(n) : 0;  // one without samples has no share
    if (times <= most.times) continue;
    const size_t first = size_t(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    most = {.times = times,
            .samples = n,
            .file = sources_[std::min(first, sources_.size() - 1)].tokens->path(),
            .is_all = most.is_all};
  }
  return most;
}

void SampleOrder::read(int64_t k, const SampleRows& to) const {
  check_lengths(to, seq_length_);
  const Place at = place_of(k);
  sources_[at.source].read(at.sample, to);
}

OpenSource::Counted SampleOrder::counted(int64_t k) const {
  const Place at = place_of(k);
  return sources_[at.source].counted(at.sample);
}

int64_t SampleOrder::number_of(int64_t k) const {
  WEFT_CHECK(k >= 0, "sample {}", k);
  const auto [group, index] = mixture_ ? (*mixture_)(k) : Mixture::Turn{.source = 0, .index = k};
  const int64_t begin = group == 0 ? 0 : group_ends_[group - 1];
  return begin + order(group, begun_[group] + index, group_ends_[group] - begin);
}

std::string SampleOrder::samples_fingerprint() const {
  std::string text = fmt::format("S={}", seq_length_);
  for (const OpenSource& s : sources_)
    text += fmt::format(" {}+{} {} {}", s.first_sample, s.num_samples, s.documents_apart, s.tokens->fingerprint());
  return text + packing_;
}

SampleOrder::Place SampleOrder::place_of(int64_t k) const {
  const int64_t at = number_of(k);
  const size_t source = size_t(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
  return {source, sources_[source].first_sample + at - (source == 0 ? 0 : ends_[source - 1])};
}

// Sample `index` of an endless walk over the n samples of a group, each once per epoch.
int64_t SampleOrder::order(size_t group, int64_t index, int64_t n) const {
  const int64_t epoch = index / n, at = index % n;
  if (!shuffle_) return at;
  return Permutation(rng_key(rng_key(rng_key(seed_, "data order"), uint64_t(group)), uint64_t(epoch)), n)(at);
}

std::unique_ptr<SampleOrder> open_sample_order(const DataSpec& spec) { return std::make_unique<SampleOrder>(spec); }

}  // namespace weft
