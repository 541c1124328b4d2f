#include "weft/sharding/param_values.h"

namespace weft {

void ParamValues::allocate(Arena& params, Arena& transit) {
  all_.resize(flats_.all.size());
  for (int i = 0; i < int(all_.size()); ++i) {
    if (!of(i).has_values()) continue;
    Flat& f = at(i);
    const Run shard = of(i).layout.shard(group_.shard());
    if (!is_cut()) f.whole = params.alloc(format_.value, {of(i).size()});
    f.master = is_cut() || format_.rounds() ? params.alloc(format_.master, {shard.count})
                                            : f.whole.slice_rows(shard.first, shard.count);
    f.shard = !is_cut()          ? f.whole.slice_rows(shard.first, shard.count)
              : format_.rounds() ? params.alloc(format_.value, {shard.count})
                                 : f.master;
  }
  if (!is_cut()) {
    for (int i = 0; i < int(all_.size()); ++i) point(i);
    return;
  }
  for (const int64_t elements : flats_.buffer_sizes(false)) pool_.add(transit, format_.value, elements);
  // Where the largest keeps a buffer to itself, two neighbours need one more.
  const int64_t next = flats_.largest_neighbour();
  if (next > 0 && pool_.num_holding(next) < 3 && pool_[0].rows() > next) pool_.add(transit, format_.value, next);
}

void ParamValues::point(int flat) {
  for (Param* p : of(flat).params) {
    const Param& owner = p->tied_to_ ? *p->tied_to_ : *p;
    const Tensor kept = at(owner.flat_).whole.slice_rows(owner.offset_, owner.kept_elements());
    p->value = (owner.spec().in_codes() ? kept : kept.reshape(owner.shape())).placed(p->spec().place);
  }
}

void ParamValues::fetch(int flat) {
  WEFT_CHECK(size_t(flat) < all_.size() && at(flat).master, "{} has no memory", of(flat).name);
  if (!is_cut()) return;
  for (const int owner : flats_.owners_of(flat)) fetch(owner);
  Flat& f = at(flat);
  if (f.fetched++ > 0) return;
  const int64_t size = of(flat).size();
  if (size > 0) {
    if (f.buffer < 0 && !pool_.has_free(size)) drop_prefetched();
    if (f.buffer < 0) begin_gather(flat, pool_.take(size));
    f.gather.wait();
  }
  point(flat);
}

void ParamValues::begin_gather(int flat, int buffer) {
  Flat& f = at(flat);
  f.buffer = buffer;
  f.whole = pool_[buffer].slice_rows(0, of(flat).size());
  f.gather = group_.ranks.shards->all_gather(f.shard, f.whole);
}

void ParamValues::prefetch(int flat) {
  if (!is_cut() || group_.shard().size == 1) return;
  for (const int owner : flats_.owners_of(flat)) prefetch(owner);
  const int64_t size = of(flat).size();
  if (at(flat).buffer >= 0 || size == 0) return;
  if (const int buffer = pool_.take_spare(size); buffer >= 0) begin_gather(flat, buffer);
}

// What came too early: its buffer is needed, or its values are old.
void ParamValues::drop_prefetched() {
  for (Flat& f : all_) {
    if (f.buffer < 0 || f.fetched > 0) continue;
    f.gather.wait();
    pool_.give(std::exchange(f.buffer, -1));
  }
}

void ParamValues::release(int flat) {
  if (!is_cut()) return;
  for (const int owner : flats_.owners_of(flat)) release(owner);
  Flat& f = at(flat);
  WEFT_CHECK(f.fetched > 0, "{} is released, but not fetched", of(flat).name);
  if (--f.fetched > 0 || of(flat).size() == 0) return;
  pool_.give(std::exchange(f.buffer, -1));
  f.whole = {};
}

void ParamValues::round(Backend& backend) {
  if (!format_.rounds()) return;
  for (int i = 0; i < int(all_.size()); ++i)
    if (of(i).has_values() && of(i).size() > 0) backend.run(Copy{.from = at(i).master, .to = at(i).shard});
}

void ParamValues::wait_gathered() {
  drop_prefetched();
  if (group_.order.zero_stage == 0 || is_cut()) return;
  for (int i = 0; i < int(all_.size()); ++i)
    if (of(i).has_values() && of(i).size() > 0)
      at(i).gather = group_.ranks.shards->all_gather(at(i).shard, at(i).whole);
  for (Flat& f : all_) f.gather.wait();
}

}  // namespace weft
