#include "weft/sharding/flat_params.h"

#include <algorithm>

namespace weft {

std::vector<int> FlatParams::owners_of(int flat) const {
  std::vector<int> owners;
  for (const Param* p : all[size_t(flat)].params)
    if (p->tied_to_ != nullptr) owners.push_back(p->tied_to_->flat_);
  return owners;
}

void FlatParams::add_mirrors(int flat) {
  for (size_t i = 0; i < all[size_t(flat)].params.size(); ++i) {
    Param* p = all[size_t(flat)].params[i];
    if (p->tied_to_ == nullptr) continue;
    const FlatParam& owner = all[size_t(p->tied_to_->flat_)];
    p->offset_ = p->tied_to_->offset_;
    p->flat_ = int(all.size());
    all.push_back(FlatParam{.name = owner.name + " in " + all[size_t(flat)].name,
                            .params = {p},
                            .mirrors = p->tied_to_->flat_,
                            .layout = alone(owner.layout, *p->tied_to_)});
  }
}

std::vector<int64_t> FlatParams::buffer_sizes(bool ties_stay) const {
  std::vector<int64_t> sizes{0};
  for (const FlatParam& f : all) sizes.push_back(f.size());
  std::sort(sizes.rbegin(), sizes.rend());
  int64_t second = 0;
  const auto both = [&](int a, int b) {
    second = std::max(second, std::min(all[size_t(a)].size(), all[size_t(b)].size()));
  };
  for (const std::vector<int>& flats : together)
    for (size_t i = 1; i < flats.size(); ++i) both(flats[i - 1], flats[i]);
  for (int i = 0; i < int(all.size()); ++i)
    for (const int owner : owners_of(i)) {
      both(i, owner);
      if (ties_stay) second = std::max(second, sizes[1]);
    }
  std::vector<int64_t> buffers{sizes[0]};
  if (second > 0) buffers.push_back(second);
  if (const int64_t next = largest_neighbour(); next > 0) buffers.push_back(next);
  return buffers;
}

int64_t FlatParams::largest_neighbour() const {
  int64_t largest = 0;
  for (size_t i = 1; i < all.size(); ++i) largest = std::max(largest, std::min(all[i - 1].size(), all[i].size()));
  return largest;
}

}  // namespace weft
