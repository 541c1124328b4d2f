#include "weft/train/local_neighbours.h"

#include <algorithm>
#include <array>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/fault_point.h"
#include "weft/checkpoint/checkpoint_check.h"  // sum_over

namespace weft {

namespace fs = std::filesystem;

std::vector<NeighbourOf> neighbours_of(const std::vector<std::string>& hosts) {
  std::vector<std::vector<int>> ranks;  // of each host
  std::vector<size_t> host_of, place;   // of each rank: its host, and its place there
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto same = [&](const std::vector<int>& some) { return hosts[size_t(some[0])] == hosts[rank]; };
    const auto host = size_t(std::find_if(ranks.begin(), ranks.end(), same) - ranks.begin());
    if (host == ranks.size()) ranks.emplace_back();
    host_of.push_back(host);
    place.push_back(ranks[host].size());
    ranks[host].push_back(int(rank));
  }
  if (ranks.size() < 2) return {};
  std::vector<NeighbourOf> all;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::vector<int>& next = ranks[(host_of[rank] + 1) % ranks.size()];
    all.push_back({.holder = next[place[rank] % next.size()], .turn = int(place[rank] / next.size())});
  }
  return all;
}

std::vector<std::string> wait_hosts_of(Communicator& ranks, const std::string& mine) {
  using Name = std::array<char, 256>;
  Name name = {};
  mine.copy(name.data(), name.size() - 1);
  std::vector<Name> names(size_t(ranks.size()));
  ranks
      .all_gather({name.data(), DType::u8, {int64_t(name.size())}},
                  {names.data(), DType::u8, {int64_t(name.size()) * ranks.size()}})
      .wait();
  std::vector<std::string> hosts;
  for (const Name& host : names) hosts.emplace_back(host.data());
  return hosts;
}

namespace {

Tensor tensor_of(const std::byte* data, int64_t bytes) {
  return {const_cast<std::byte*>(data), DType::u8, {bytes}};  // a send only reads it
}

}  // namespace

NeighbourCopy::NeighbourCopy(Spec spec)
    : spec_(std::move(spec)), bytes_(spec_.neighbours.size()), rooms_(spec_.neighbours.size()) {
  WEFT_CHECK(spec_.room.size() >= 2, "a neighbour's share without room for it");
  bytes_[size_t(rank())] = spec_.data.size();
  rooms_[size_t(rank())] = spec_.room.size() / 2;
  sum_over(spec_.ranks, bytes_);
  sum_over(spec_.ranks, rooms_);
  for (size_t of = 0; of < spec_.neighbours.size(); ++of) {
    const auto turn = size_t(spec_.neighbours[of].turn);
    if (turn >= slices_of_turn_.size()) slices_of_turn_.resize(turn + 1);
    slices_of_turn_[turn] = std::max(slices_of_turn_[turn], num_slices(int(of)));
  }
}

void NeighbourCopy::wait_begin(const std::string& manifest) {
  std::vector<uint64_t> sizes(spec_.neighbours.size());
  sizes[size_t(rank())] = manifest.size();
  sum_over(spec_.ranks, sizes);
  manifests_.resize(slices_of_turn_.size());
  std::vector<Work> works;
  const auto bytes_of_text = [](const std::string& text) { return reinterpret_cast<const std::byte*>(text.data()); };
  works.push_back(spec_.ranks.send(tensor_of(bytes_of_text(manifest), int64_t(manifest.size())),
                                   spec_.neighbours[size_t(rank())].holder));
  for (int turn = 0; turn < int(manifests_.size()); ++turn) {
    const int from = held_in(turn);
    if (from < 0) continue;
    std::string& text = manifests_[size_t(turn)];
    text.resize(sizes[size_t(from)]);
    works.push_back(spec_.ranks.recv(tensor_of(bytes_of_text(text), int64_t(text.size())), from));
  }
  for (Work& work : works) work.wait();
  begin_slice();
}

// All ranks have their slices of a round under way at once: nobody waits for one that another has not begun.
void NeighbourCopy::begin_slice() {
  coming_ = {};
  if (!is_under_way()) return;
  const NeighbourOf& mine = spec_.neighbours[size_t(rank())];
  const auto range = [&](int of) {
    const int64_t first = slice_ * slice_bytes(of);
    return std::pair(first, std::min(slice_bytes(of), int64_t(bytes_[size_t(of)]) - first));
  };
  if (mine.turn == turn_ && slice_ < num_slices(rank())) {
    const auto [first, bytes] = range(rank());
    if (bytes > 0) under_way_.push_back(spec_.ranks.send(tensor_of(spec_.data.data() + first, bytes), mine.holder));
  }
  const int from = held_in(turn_);
  if (from < 0 || slice_ >= num_slices(from)) return;
  const auto [first, bytes] = range(from);
  coming_ = {.from = from,
             .first = first,
             .bytes = bytes,
             .to = spec_.room.data() + (rounds_ % 2) * slice_bytes(from),
             .is_last = slice_ + 1 == num_slices(from)};
  if (bytes > 0) under_way_.push_back(spec_.ranks.recv(tensor_of(coming_.to, bytes), from));
}

void NeighbourCopy::next_round() {
  ++rounds_;
  if (++slice_ < slices_of_turn_[size_t(turn_)]) return;
  slice_ = 0;
  ++turn_;
}

void NeighbourCopy::wait_slice() {
  for (Work& work : std::exchange(under_way_, {})) work.wait();
  arrived_ = coming_;
  next_round();
  begin_slice();
}

void NeighbourCopy::wait_stop() {
  for (Work& work : std::exchange(under_way_, {})) work.wait();
  turn_ = int(slices_of_turn_.size());
}

void NeighbourCopy::write_arrived() {
  if (arrived_.from < 0) return;
  const int from = arrived_.from;
  try {
    if (arrived_.first == 0) {
      create_life(spec_.life);
      folder_ = std::make_unique<DurableFolder>(path_of(from));
      files_ = std::make_unique<LocalShareFiles>(folder_->building());
      if (from == 0) spec_.write_files(folder_->building());
    }
    files_->write({arrived_.to, size_t(arrived_.bytes)});
    if (!arrived_.is_last) return;
    files_->end(manifests_[size_t(spec_.neighbours[size_t(from)].turn)]);
    fault_point("neighbour_written", rank(), spec_.step);
    folder_->commit();
    files_.reset();
    folder_.reset();
  } catch (const FileError& e) {
    throw FileError(fmt::format("what rank {} is to hold for rank {}: {}", rank(), from, e.what()));
  }
}

int NeighbourCopy::held_in(int turn) const {
  for (size_t of = 0; of < spec_.neighbours.size(); ++of)
    if (spec_.neighbours[of].holder == rank() && spec_.neighbours[of].turn == turn) return int(of);
  return -1;
}

int64_t NeighbourCopy::slice_bytes(int of) const {
  return int64_t(rooms_[size_t(spec_.neighbours[size_t(of)].holder)]);
}

int64_t NeighbourCopy::num_slices(int of) const {
  const int64_t each = slice_bytes(of);
  return std::max<int64_t>(1, (int64_t(bytes_[size_t(of)]) + each - 1) / each);
}

fs::path NeighbourCopy::path_of(int of) const {
  return spec_.life /
         to_string(LocalShareName{.step = spec_.step, .rank = of, .ranks = spec_.ranks.size(), .of_neighbour = true});
}

std::vector<fs::path> NeighbourCopy::held() const {
  std::vector<fs::path> all;
  for (size_t of = 0; of < spec_.neighbours.size(); ++of)
    if (spec_.neighbours[of].holder == rank()) all.push_back(path_of(int(of)));
  return all;
}

}  // namespace weft
