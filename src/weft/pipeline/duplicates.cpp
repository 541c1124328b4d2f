#include "weft/pipeline/duplicates.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "weft/base/descriptor.h"
#include "weft/base/error.h"
#include "weft/base/rng.h"
#include "weft/pipeline/document.h"

namespace weft {
namespace {
constexpr uint64_t kSeed = 0x77656674;  // part of the format: other functions find other pairs
}

MinHash::MinHash(int64_t bands, int64_t rows) : bands_(bands), rows_(rows) {
  for (int64_t i = 0; i < bands * rows; ++i) {
    factors_.push_back(rng_key(kSeed, uint64_t(2 * i)) | 1);
    offsets_.push_back(rng_key(kSeed, uint64_t(2 * i + 1)));
  }
}

std::vector<Hash128> MinHash::band_keys(const std::vector<uint64_t>& shingles) const {
  const size_t n = factors_.size();
  std::vector<uint64_t> least(n, UINT64_MAX);
  for (const uint64_t x : shingles)
    for (size_t i = 0; i < n; ++i) least[i] = std::min(least[i], x * factors_[i] + offsets_[i]);
  std::vector<Hash128> keys;
  std::vector<uint64_t> band(size_t(rows_) + 1);
  for (int64_t b = 0; b < bands_; ++b) {
    band[0] = uint64_t(b);
    std::copy_n(least.begin() + b * rows_, rows_, band.begin() + 1);
    keys.push_back(hash128({reinterpret_cast<const char*>(band.data()), band.size() * sizeof(uint64_t)}));
  }
  return keys;
}

std::vector<uint32_t> shingle_set(const std::vector<uint64_t>& shingles) {
  std::vector<uint32_t> set;
  set.reserve(shingles.size());
  for (const uint64_t x : shingles) set.push_back(uint32_t(x >> 32));
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
  return set;
}

double jaccard(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  if (a.empty() && b.empty()) return 1;
  size_t i = 0, j = 0, shared = 0;
  while (i < a.size() && j < b.size()) {
    const uint32_t x = a[i], y = b[j];
    shared += x == y;
    i += x <= y;
    j += y <= x;
  }
  return double(shared) / double(a.size() + b.size() - shared);
}

Clusters::Node& Clusters::node(uint64_t document) {
  return nodes_.try_emplace(document, Node{.parent = document}).first->second;
}

Clusters::Node Clusters::to_first(uint64_t document) const {
  const auto at = nodes_.find(document);
  if (at == nodes_.end()) return {.parent = document};
  Node* node = &at->second;
  Node way = *node;
  for (uint64_t here = document; way.parent != here;) {
    here = way.parent;
    Node& up = nodes_.find(here)->second;
    way = {.parent = up.parent, .same = std::max(way.same, up.same), .jaccard = std::min(way.jaccard, up.jaccard)};
  }
  return *node = way;  // shorter the next time
}

uint64_t Clusters::first_of(uint64_t document) const { return to_first(document).parent; }

void Clusters::join(uint64_t a, uint64_t b, Same same, double jaccard) {
  node(a), node(b);
  const Node way_a = to_first(a), way_b = to_first(b);
  if (way_a.parent == way_b.parent) return;
  node(std::max(way_a.parent, way_b.parent)) = {.parent = std::min(way_a.parent, way_b.parent),
                                                .same = std::max({way_a.same, way_b.same, same}),
                                                .jaccard = std::min({way_a.jaccard, way_b.jaccard, jaccard})};
}

std::vector<Duplicate> Clusters::duplicates() const {
  std::vector<Duplicate> all;
  for (const auto& one : nodes_)
    if (const Node way = to_first(one.first); way.parent != one.first)
      all.push_back({one.first, way.parent, way.same, way.jaccard});
  std::sort(all.begin(), all.end(), [](const Duplicate& a, const Duplicate& b) { return a.document < b.document; });
  return all;
}

std::filesystem::path ShingleFiles::file_of(int64_t shard) const {
  return folder_ / fmt::format("{:05}.shingles", shard);
}

std::vector<uint32_t> ShingleFiles::load(uint64_t document, uint64_t place) const {
  const std::filesystem::path file = file_of(DocumentId::of_number(document).shard);
  const Descriptor fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  uint32_t size = 0;
  std::vector<uint32_t> set;
  const auto get = [&](void* to, size_t bytes, uint64_t from) {
    return pread(fd, to, bytes, off_t(from)) == ssize_t(bytes);
  };
  bool good = fd >= 0 && get(&size, sizeof size, place);
  if (good) {
    set.resize(size);
    good = get(set.data(), size * sizeof(uint32_t), place + sizeof size);
  }
  if (!good)
    throw FileError(fmt::format("{}: cannot be read; remove its folder and run the stage again", file.string()));
  return set;
}

void BandGroup::begin(const KeyRecord& first) { members_.assign(1, {first, {}}); }

void BandGroup::add(const KeyRecord& record) {
  constexpr size_t kMostMembers = 32;
  const uint64_t cluster = clusters_.first_of(record.document);
  for (const Member& m : members_)
    if (clusters_.first_of(m.record.document) == cluster) return;
  std::vector<uint32_t> set = shingles_.load(record.document, record.extra);
  for (Member& m : members_) {
    if (m.set.empty()) m.set = shingles_.load(m.record.document, m.record.extra);
    const double similarity = jaccard(m.set, set);
    if (similarity < threshold_) continue;
    return clusters_.join(m.record.document, record.document, Same::kNear, similarity);
  }
  if (members_.size() < kMostMembers) members_.push_back({record, std::move(set)});
}

}  // namespace weft
