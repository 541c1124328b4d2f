#include "weft/pipeline/duplicates.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "weft/base/descriptor.h"
#include "weft/base/error.h"
#include "weft/pipeline/document.h"
#include "weft/pipeline/minhash.h"

namespace weft {

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
