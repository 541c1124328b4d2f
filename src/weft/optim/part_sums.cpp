#include "weft/optim/part_sums.h"

#include <map>

namespace weft {

std::vector<PartSums> wait_sum_parts(const ParamStore& store, size_t count,
                                     const std::function<void(const ParamStore::Stored& block, double* sums)>& add) {
  std::vector<PartSums> all;
  std::map<const ReplicaGroup*, std::vector<double>> sums;
  for (const Param* p : store.params()) {
    if (!p->learns()) continue;
    const size_t first = all.size();
    const ReplicaGroup& group = store.group_of(*p);
    for (const HeldPart& part : p->parts())
      all.push_back({p, part.part_rows.first, part.part_rows.count, std::vector<double>(count)});
    std::vector<double>& of_group = sums[&group];
    of_group.resize(all.size() * count);
    for (const ParamStore::Stored& block : store.stored(*p))
      if (group.alike(p->parts()[size_t(block.part)].held).rank == 0)
        add(block, &of_group[(first + size_t(block.part)) * count]);
  }
  for (const ReplicaGroup* group : store.groups()) {
    std::vector<double>& of_group = sums[group];
    group->wait_sum_over_keepers({of_group.data(), DType::f64, {int64_t(of_group.size())}});
    for (size_t i = 0; i < of_group.size(); ++i) all[i / count].sums[i % count] += of_group[i];
  }
  return all;
}

}  // namespace weft
