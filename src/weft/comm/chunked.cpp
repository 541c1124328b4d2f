#include "weft/comm/chunked.h"

#include <algorithm>

namespace weft {
namespace {

constexpr int64_t kLine = 64;                 // elements: pieces begin at whole cache lines, as tensors do
constexpr int64_t kSmall = int64_t{1} << 15;  // bytes that go whole to every rank: one exchange, not two

std::byte* at(const Tensor& x, int64_t element) { return static_cast<std::byte*>(x.data) + element * size_of(x.dtype); }

// Elements of a piece: the staging holds one piece of each other rank.
int64_t most_of_piece(const Transport& transport, const RankPlace& me, DType dtype) {
  const auto others = std::max(1, me.size - 1);
  const int64_t most = int64_t(transport.staging().size()) / others / size_of(dtype) / kLine * kLine;
  WEFT_CHECK(most > 0, "{} bytes of staging for {} ranks", transport.staging().size(), me.size);
  return most;
}

// Where the piece for rank r lies: pieces of consecutive ranks are `apart` bytes apart; 0 if all get the same.
struct Parts {
  std::byte* first;
  int64_t apart;
  void* out;  // may be the own one
  std::byte* operator()(int r) const { return first + r * apart; }
};

// Sends n elements at part(r) to every other rank r, and adds the own ones at part(rank) and what came from the others.
void scatter_piece(Transport& transport, const RankPlace& me, const Parts& part, DType dtype, int64_t n) {
  const int64_t bytes = n * size_of(dtype), room = (n + kLine - 1) / kLine * kLine * size_of(dtype);
  std::vector<Transport::Piece> sent, received;
  std::vector<const void*> operands;
  std::byte* slot = transport.staging().data();
  for (int r = 0; r < me.size; ++r) {
    if (r == me.rank) {
      operands.push_back(part(r));
      continue;
    }
    sent.push_back({part(r), bytes, r});
    received.push_back({slot, bytes, r});
    operands.push_back(slot);
    slot += room;
  }
  transport.exchange(sent, received);
  transport.sum(operands, dtype, n, part.out);
}

}  // namespace

void reduce_scatter_on(Transport& transport, const RankPlace& me, const Tensor& full, const Tensor& shard) {
  const int64_t most = most_of_piece(transport, me, full.dtype);
  for (int64_t done = 0; done < shard.elements(); done += most)
    scatter_piece(transport, me, Parts{.first = at(full, done), .apart = shard.bytes(), .out = at(shard, done)},
                  full.dtype, std::min(most, shard.elements() - done));
}

void all_gather_on(Transport& transport, const Tensor& shard, const Tensor& full) {
  transport.all_gather(shard.data, full.data, shard.bytes());
}

void all_reduce_on(Transport& transport, const RankPlace& me, const Tensor& x) {
  const int64_t most = most_of_piece(transport, me, x.dtype), elements = x.elements();
  int64_t done = 0;
  const auto share = [&] { return std::min(most, (elements - done) / me.size / kLine * kLine); };
  for (int64_t n = share(); n > 0 && x.bytes() > kSmall; n = share()) {
    const int64_t bytes = n * size_of(x.dtype);
    std::byte* mine = at(x, done) + me.rank * bytes;
    scatter_piece(transport, me, Parts{.first = at(x, done), .apart = bytes, .out = mine}, x.dtype, n);
    transport.all_gather(mine, at(x, done), bytes);
    done += n * me.size;
  }
  for (; done < elements; done += most)
    scatter_piece(transport, me, Parts{.first = at(x, done), .apart = 0, .out = at(x, done)}, x.dtype,
                  std::min(most, elements - done));
}

}  // namespace weft
