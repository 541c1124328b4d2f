#include "weft/sharding/dispatch.h"

#include <cmath>
#include <span>
#include <utility>

#include "weft/comm/all_to_all.h"
#include "weft/device/host_parts.h"
#include "weft/sharding/text_ranks.h"

namespace weft {
namespace {

using Numbers = std::vector<int32_t>;

template <class T = int32_t>
std::vector<T> read(const Memory& memory, const Tensor& x) {
  std::vector<T> all;
  read_parts(memory, x,
             [&](const Tensor& part, int64_t) { all.insert(all.end(), part.as<T>(), part.as<T>() + part.elements()); });
  return all;
}
template <class T>
void write(const Memory& memory, const Tensor& x, const std::vector<T>& all) {
  write_parts(memory, x, [&](const Tensor& part, int64_t first_row) {
    std::copy_n(all.begin() + first_row * x.cols(), part.elements(), part.as<T>());
  });
}

// So many rows like those of x, of a buffer for `capacity` of them.
Tensor buffer(Arena& arena, const Tensor& x, int64_t rows, int64_t capacity) {
  const Shape shape = x.shape.rank() == 1 ? Shape(capacity) : Shape(capacity, x.cols());
  return arena.alloc(x.dtype, shape, x.place).slice_rows(0, rows);
}

std::vector<Tensor> slices_of(const Tensor& x, std::span<const int64_t> rows) {
  std::vector<Tensor> slices;
  int64_t first = 0;
  for (const int64_t count : rows) {
    slices.push_back(x.slice_rows(first, count));
    first += count;
  }
  return slices;
}

// The first `leaving[j]` rows of x go to the first rank, and so on; y receives so from each.
std::vector<Work> begin_exchange(const Dispatch::At& at, const Tensor& x, std::span<const int64_t> leaving,
                                 const Tensor& y, std::span<const int64_t> coming) {
  Communicator& ranks = at.mesh[Axis::ep];
  const std::vector<Tensor> out = slices_of(x, leaving), in = slices_of(y, coming);
  const auto me = size_t(ranks.rank());
  if (out[me].elements() > 0) at.be.run(Copy{.from = out[me], .to = in[me]});
  return begin_all_to_all(ranks, out, in);
}

// What takes the place of counts where no rank sends any: all experts have as many.
ExpertCounts balanced(int64_t ranks, int64_t experts, int64_t pairs) {
  ExpertCounts counts(ranks, experts);
  for (int64_t r = 0; r < ranks; ++r)
    for (int64_t e = 0; e < experts; ++e) counts.of(r, e) = share_of(pairs, {experts, e}).count;
  return counts;
}

// The last pairs of each expert that are not taken have no row.
void drop(const Memory& memory, const ExpertCounts& all, const ExpertCounts& taken, int64_t me, Dispatch::Routes& r) {
  Numbers order = read(memory, r.order), places = read(memory, r.places);
  int64_t from = 0, to = 0;
  for (int64_t e = 0; from < r.order.rows(); ++e) {
    for (int64_t i = 0; i < all.of(me, e); ++i) {
      const int32_t pair = order[size_t(from++)];
      const bool goes = i < taken.of(me, e);
      places[size_t(pair)] = goes ? int32_t(to) : -1;
      if (goes) order[size_t(to++)] = pair;
    }
  }
  write(memory, r.order, order);
  write(memory, r.places, places);
  r.order = r.order.slice_rows(0, to);
  r.dropped = from - to;
}

// Of pairs in the order of their experts, those of `mine` alone have rows here.
void keep(const Memory& memory, const Numbers& offsets, Run experts, Run mine, const Dispatch::Routes& r) {
  Numbers here, places = read(memory, r.places);
  for (int64_t e = experts.first; e <= experts.end(); ++e)
    here.push_back(int32_t(std::clamp(int64_t(offsets[size_t(e)]) - mine.first, int64_t{0}, mine.count)));
  for (int32_t& row : places) row = row >= mine.first && row < mine.end() ? row - int32_t(mine.first) : -1;
  write(memory, r.offsets, here);
  write(memory, r.places, places);
}

// Rows come by rank, and of each rank by expert.
void write_arrivals(const Memory& memory, const ExpertCounts& taken, int64_t me, const Dispatch::Routes& r) {
  const Run here = taken.experts_of(me);
  Numbers offsets{0};
  for (int64_t e = here.first; e < here.end(); ++e) {
    int64_t rows = 0;
    for (int64_t from = 0; from < taken.ranks(); ++from) rows += taken.of(from, e);
    offsets.push_back(int32_t(offsets.back() + rows));
  }
  write(memory, r.offsets, offsets);
  Numbers next = offsets, arrived(static_cast<size_t>(r.rows)), back(static_cast<size_t>(r.rows));
  int32_t at = 0;
  for (int64_t from = 0; from < taken.ranks(); ++from)
    for (int64_t g = 0; g < here.count; ++g)
      for (int64_t i = 0; i < taken.of(from, here.first + g); ++i, ++at) {
        const int32_t row = next[size_t(g)]++;
        arrived[size_t(row)] = at;
        back[size_t(at)] = row;
      }
  write(memory, r.arrived, arrived);
  write(memory, r.back, back);
}

}  // namespace

// All pairs of the tokens here, by expert.
Dispatch::Routes Dispatch::group(const At& at, Tensor ids, Arena& kept) const {
  const int64_t pairs = ids.elements();
  Routes r;
  r.order = kept.alloc(DType::i32, {pairs});
  r.places = kept.alloc(DType::i32, {ids.rows(), ids.cols()});
  r.offsets = kept.alloc(DType::i32, {spec_.experts + 1});
  r.rows = r.capacity = pairs;
  at.be.run(GroupRows{.ids = ids, .order = r.order, .places = r.places, .offsets = r.offsets});
  return r;
}

Dispatch::Routes Dispatch::route(const At& at, Tensor ids, Arena& kept) const {
  Communicator& ranks = at.mesh[Axis::ep];
  const int64_t pairs = ids.elements(), n = ranks.size(), me = ranks.rank();
  Routes r = group(at, ids, kept);
  if (n == 1) return r;
  const bool has_data = ids.data != nullptr;  // on a dry mesh: only where a bench only computes
  const ExpertCounts found = wait_counts(at, r.offsets);
  const ExpertCounts counts = ranks.is_dry() ? balanced(n, spec_.experts, pairs) : found;
  // Where ranks go on with texts of their own, some have more tokens than others.
  const int64_t tokens = counts.most_sent() / spec_.chosen;
  r.capacity = spec_.capacity.rows(tokens, spec_.chosen, spec_.experts, n);
  if (!spec_.capacity.drops && !ranks.is_dry()) check_capacity(counts, tokens, r.capacity);
  const ExpertCounts taken = counts.within(r.capacity);
  for (int64_t j = 0; j < n; ++j) {
    r.sent.push_back(taken.sent(me, j));
    r.received.push_back(taken.sent(j, me));
  }
  r.rows = has_data ? taken.received(me) : r.capacity;
  r.offsets = kept.alloc(DType::i32, {spec_.experts / n + 1});
  r.arrived = kept.alloc(DType::i32, {r.capacity}).slice_rows(0, r.rows);
  r.back = kept.alloc(DType::i32, {r.capacity}).slice_rows(0, r.rows);
  if (!has_data) return r;
  if (taken.sent(me) < pairs) drop(*kept.memory(), counts, taken, me, r);
  write_arrivals(*kept.memory(), taken, me, r);
  return r;
}

Dispatch::Routes Dispatch::route_shared(const At& at, Tensor ids, RankOf sharer, Arena& kept) const {
  Communicator& ranks = at.mesh[Axis::ep];
  const Run experts = share_of(spec_.experts, {ranks.size(), ranks.rank()});
  Routes r = group(at, ids, kept);
  r.shared = true;
  const Tensor all = std::exchange(r.offsets, kept.alloc(DType::i32, {experts.count + 1}));
  if (ids.data == nullptr) return r;
  at.be.wait_all();
  const Numbers offsets = read(*kept.memory(), all);
  const int64_t first = offsets[size_t(experts.first)];
  Run mine = share_of(offsets[size_t(experts.end())] - first, sharer);
  mine.first += first;
  keep(*kept.memory(), offsets, experts, mine, r);
  r.order = r.order.slice_rows(mine.first, mine.count);
  r.rows = mine.count;
  return r;
}

Dispatch::Routes Dispatch::route_here(const At& at, Tensor ids, Arena& kept) const {
  const int64_t ranks = at.mesh[Axis::ep].size(), here = spec_.experts / ranks;
  Routes r = group(at, ids, kept);
  for (int64_t rank = 0; rank < ranks; ++rank) r.owned.push_back({{}, kept.alloc(DType::i32, {here + 1})});
  r.owned[0].rows.count = r.rows;  // without data: the largest product that may be
  if (ids.data == nullptr) return r;
  at.be.wait_all();
  const Numbers offsets = read(*kept.memory(), r.offsets);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto first = offsets.begin() + rank * here;
    Routes::Owned& owned = r.owned[size_t(rank)];
    owned.rows = {*first, first[here] - *first};
    Numbers among(first, first + here + 1);
    for (int32_t& row : among) row -= int32_t(owned.rows.first);
    write(*kept.memory(), owned.offsets, among);
  }
  return r;
}

// The host looks at them: it is behind all ops then, and may write what they no longer read.
ExpertCounts Dispatch::wait_counts(const At& at, Tensor offsets) const {
  Communicator& ranks = at.mesh[Axis::ep];
  const int64_t n = ranks.size(), size = spec_.experts + 1;
  Scope temporaries(at.scratch);
  const Tensor all = at.scratch.alloc(DType::i32, {n, size});
  ranks.all_gather(offsets.reshape({1, size}), all).wait();
  at.be.wait_all();
  ExpertCounts counts(n, spec_.experts);
  if (ranks.is_dry()) return counts;
  const Numbers begins = read(*at.scratch.memory(), all);
  for (int64_t r = 0; r < n; ++r)
    for (int64_t e = 0; e < spec_.experts; ++e)
      counts.of(r, e) = begins[size_t(r * size + e + 1)] - begins[size_t(r * size + e)];
  return counts;
}

void Dispatch::check_capacity(const ExpertCounts& counts, int64_t tokens, int64_t capacity) const {
  const int64_t rank = counts.fullest(), rows = counts.received(rank);
  if (rows <= capacity) return;
  const double enough = std::ceil(100 * double(rows) / double(tokens * spec_.chosen)) / 100;
  throw CapacityError(fmt::format(
      "{}: the experts of expert-parallel rank {} of {} would receive {} rows and have room for {} by "
      "moe.capacity_factor = {}; set it to {:.2f} or more, leave it out (then there is room for all that can come), or "
      "set moe.overflow = \"drop\"",
      spec_.name, rank, counts.ranks(), rows, capacity, spec_.capacity.factor, enough));
}

Tensor Dispatch::alloc_rows(Arena& arena, DType dtype, const Routes& routes, int64_t cols, Placement place) {
  return arena.alloc(dtype, {routes.capacity, cols}, place).slice_rows(0, routes.rows);
}

Dispatch::OnTheWay Dispatch::begin(const At& at, const Routes& r, Tensor x, int64_t per, Tensor rows) const {
  if (r.sent.empty()) {
    at.be.run(GatherRows{.x = x, .order = r.order, .out = rows, .per = per});
    return {.rows = rows, .coming = {}, .works = {}};
  }
  const Tensor leaving = buffer(at.scratch, x, r.order.rows(), r.places.elements());
  at.be.run(GatherRows{.x = x, .order = r.order, .out = leaving, .per = per});
  const Tensor coming = buffer(at.scratch, x, r.rows, r.capacity);
  return {.rows = rows, .coming = coming, .works = begin_exchange(at, leaving, r.sent, coming, r.received)};
}

Dispatch::OnTheWay Dispatch::begin_to_experts(const At& at, const Routes& r, Tensor x, int64_t per, Arena& out) const {
  return begin(at, r, x, per, buffer(out, x, r.rows, r.capacity));
}

Tensor Dispatch::wait_at_experts(const At& at, const Routes& r, OnTheWay way) const {
  for (Work& work : way.works) work.wait();
  if (way.coming) at.be.run(GatherRows{.x = way.coming, .order = r.arrived, .out = way.rows});
  return way.rows.placed(expert_rows(way.rows.place.tp()));
}

Tensor Dispatch::to_experts(const At& at, const Routes& r, Tensor x, int64_t per, Arena& out) const {
  const Tensor rows = buffer(out, x, r.rows, r.capacity);
  Scope temporaries(at.scratch);
  return wait_at_experts(at, r, begin(at, r, x, per, rows));
}

Tensor Dispatch::pair_numbers(const At& at, const Routes& r, Tensor tokens, Arena& kept) const {
  Communicator& ranks = at.mesh[Axis::ep];
  const Tensor rows = kept.alloc(DType::i64, {r.capacity}).slice_rows(0, r.rows);
  Scope temporaries(at.scratch);
  const bool has_data = tokens.data != nullptr && r.offsets.data != nullptr, travel = !r.sent.empty();
  const Memory& memory = *kept.memory();
  std::vector<int64_t> numbers;  // of the tokens of the rows that leave; then of those that are here
  if (has_data) {
    at.be.wait_all();
    const std::vector<int64_t> all = read<int64_t>(memory, tokens);
    for (const int32_t pair : read(memory, r.order)) numbers.push_back(all[size_t(pair / spec_.chosen)]);
  }
  if (travel) {
    const Tensor leaving = at.scratch.alloc(DType::i64, {r.places.elements()}).slice_rows(0, r.order.rows()),
                 coming = at.scratch.alloc(DType::i64, {r.capacity}).slice_rows(0, r.rows);
    const std::vector<Tensor> out = slices_of(leaving, r.sent), in = slices_of(coming, r.received);
    const auto me = size_t(ranks.rank());
    if (has_data) {
      write(memory, leaving, numbers);
      if (out[me].elements() > 0) write(memory, in[me], read<int64_t>(memory, out[me]));
    }
    wait_all_to_all(ranks, out, in);
    if (has_data) {
      at.be.wait_all();
      const std::vector<int64_t> came = read<int64_t>(memory, coming);
      numbers.clear();
      for (const int32_t from : read(memory, r.arrived)) numbers.push_back(came[size_t(from)]);
    }
  }
  if (!has_data) return rows;
  const Numbers offsets = read(memory, r.offsets);
  const int64_t first = share_of(spec_.experts, {ranks.size(), ranks.rank()}).first;
  for (size_t g = 0; g + 1 < offsets.size(); ++g)
    for (int32_t row = offsets[g]; row < offsets[g + 1]; ++row)
      numbers[size_t(row)] = numbers[size_t(row)] * spec_.experts + first + int64_t(g);
  write(memory, rows, numbers);
  return rows;
}

// Rows by expert, in the order that they left their ranks in.
Tensor Dispatch::home(const At& at, const Routes& r, Tensor rows) const {
  const Tensor x = rows.placed(tokens(rows.place.tp()));
  if (r.sent.empty()) return x;
  const Tensor left = buffer(at.scratch, x, r.order.rows(), r.places.elements());
  Scope temporaries(at.scratch);
  const Tensor came = buffer(at.scratch, x, r.rows, r.capacity);
  at.be.run(GatherRows{.x = x, .order = r.back, .out = came});
  for (Work& work : begin_exchange(at, came, r.received, left, r.sent)) work.wait();
  return left;
}

Tensor Dispatch::to_tokens(const At& at, const Routes& r, Tensor rows) const {
  const Tensor y = at.scratch.alloc(rows.dtype, {r.places.rows(), rows.cols()}, tokens(rows.place.tp()));
  Scope temporaries(at.scratch);
  at.be.run(SumRows{.x = home(at, r, rows), .places = r.places, .out = y});
  return r.shared ? sum_over_keepers(at.mesh, y, at.scratch) : y;
}

Tensor Dispatch::to_pairs(const At& at, const Routes& r, Tensor rows) const {
  const Tensor y = at.scratch.alloc(rows.dtype, {r.places.elements()}, tokens(rows.place.tp()));
  Scope temporaries(at.scratch);
  at.be.run(GatherRows{.x = home(at, r, rows), .order = r.places.reshape({r.places.elements()}), .out = y});
  return y;
}

}  // namespace weft
