#include "weft/comm/mpi/mpi_operations.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "weft/comm/mpi/mpi_post.h"
#include "weft/comm/rank_sum.h"

namespace weft {

MpiTransfer::MpiTransfer(const Spec& spec)
    : spec_(spec), requests_(size_t(std::min(num_parts(), int64_t(spec.parts.window)))) {}

int64_t MpiTransfer::num_parts() const {
  return spec_.bytes == 0 ? 0 : (spec_.bytes + spec_.parts.bytes - 1) / spec_.parts.bytes;
}

void MpiTransfer::advance(int64_t limit, int64_t& events) {
  limit = std::min(limit, num_parts());
  for (; done_ < begun_; ++done_, ++events) {
    int done = 0;
    check_mpi(MPI_Test(&requests_[size_t(done_ % spec_.parts.window)], &done, MPI_STATUS_IGNORE), "move a part");
    if (done == 0) break;
  }
  for (; begun_ < limit && begun_ - done_ < spec_.parts.window; ++begun_) begin(begun_);
}

void MpiTransfer::begin(int64_t part) {
  const int64_t first = part * spec_.parts.bytes;
  const int bytes = int(std::min(spec_.parts.bytes, spec_.bytes - first));
  std::byte* data = spec_.data + (spec_.cycles ? part % spec_.parts.window * spec_.parts.bytes : first);
  MPI_Request* request = &requests_[size_t(part % spec_.parts.window)];
  if (spec_.receives)
    check_mpi(MPI_Irecv(data, bytes, MPI_BYTE, spec_.peer, spec_.tag, spec_.comm, request), "receive a part");
  else
    check_mpi(MPI_Isend(data, bytes, MPI_BYTE, spec_.peer, spec_.tag, spec_.comm, request), "send a part");
}

namespace {

constexpr int kSummands = 1, kSums = 2, kMessages = 3;  // tags; messages have kNumbers of them
constexpr int64_t kNumbers = 16384;                     // below the least limit of tags that MPI allows
constexpr int64_t kStaging = int64_t{2} << 20, kLeastPart = int64_t{1} << 14, kMostPart = int64_t{1} << 18;
constexpr int64_t kFarStaging = int64_t{64} << 20, kMostFarPart = int64_t{1} << 22;
constexpr int kWindow = 4, kFarWindow = 16;      // of a sum
constexpr int64_t kLongPart = int64_t{1} << 22;  // of what is only copied
constexpr int kLongWindow = 64;

int tag_of(int64_t number) { return kMessages + int(number % kNumbers); }

}  // namespace

MpiGroup::Parts MpiGroup::parts_of_sum(int64_t share_bytes) const {
  const int64_t peers = std::max(1, size() - 1);
  const auto whole = [](int64_t bytes, int64_t most) {
    return std::clamp(int64_t(std::bit_floor(uint64_t(bytes))), kLeastPart, most);
  };
  if (on_one_host) return {.bytes = whole(kStaging / (peers * kWindow), kMostPart), .window = kWindow};
  const int window = int(std::clamp(kFarStaging / (peers * kLeastPart), int64_t{kWindow}, int64_t{kFarWindow}));
  return {.bytes = whole(std::min(kFarStaging / peers, share_bytes) / window, kMostFarPart), .window = window};
}

MpiGroup::Parts MpiGroup::parts_of_copy() { return {.bytes = kLongPart, .window = kLongWindow}; }

// --- collectives ---

std::vector<int> Collective::missing() const {
  std::vector<int> ranks;
  for (int r = 0; r < group_.size(); ++r)
    if (r != group_.rank && !done_with(r)) ranks.push_back(group_.members[size_t(r)]);
  return ranks;
}

void Collective::tell(int rank, std::span<const std::byte> payload) {
  group_.hub.post().send(group_.members[size_t(rank)], Note::of(NoteKind::call, group_.index, call), payload);
}

bool Collective::meet(int rank) {
  LetterPtr& letter = met_[size_t(rank)];
  if (letter) return true;
  letter = group_.hub.take(NoteKind::call, group_.index, group_.members[size_t(rank)]);
  if (!letter) return false;
  const CommCall theirs = letter->note.call();
  if (theirs.matches(call)) return true;
  const std::string me = fmt::format("rank {} is in {}", group_.hub.rank(), call.to_string());
  const std::string other = fmt::format("rank {} is in {}", group_.members[size_t(rank)], theirs.to_string());
  group_.hub.fail(
      fmt::format("the ranks do not agree: {}, {}", rank < group_.rank ? other : me, rank < group_.rank ? me : other));
}

bool Collective::meet_all() {
  bool all = true;
  for (int r = 0; r < group_.size(); ++r)
    if (r != group_.rank) all = meet(r) && all;
  return all;
}

void Collective::recycle() {
  for (LetterPtr& letter : met_)
    if (letter) group_.hub.post().recycle(std::move(letter));
}

SmallCollective::SmallCollective(MpiGroup& group, const CommCall& call, Spec spec)
    : Collective(group, call), spec_(std::move(spec)) {
  for (int step = 1; step < group.size(); ++step) {
    const int to = (group.rank + step) % group.size();
    tell(to, spec_.part(to));
  }
}

bool SmallCollective::advance(int64_t&) {
  if (!meet_all()) return false;
  std::vector<const void*> payloads;
  for (int r = 0; r < group_.size(); ++r)
    payloads.push_back(r == group_.rank ? static_cast<const void*>(spec_.part(r).data()) : met_[size_t(r)]->payload);
  spec_.finish(payloads);
  recycle();
  return true;
}

MpiExchange::MpiExchange(MpiGroup& group, const CommCall& call, Spec spec)
    : Collective(group, call),
      spec_(std::move(spec)),
      parts_(spec_.scatters ? group.parts_of_sum(spec_.first[1] * size_of(call.dtype)) : MpiGroup::parts_of_copy()),
      lanes_(group.members.size()),
      operands_(group.members.size()) {
  for (int step = 1; step < group.size(); ++step) tell((group.rank + step) % group.size());
  if (!spec_.scatters && share(group.rank) != spec_.own)
    std::memcpy(share(group.rank), spec_.own, size_t(share_bytes(group.rank)));
}

bool MpiExchange::advance(int64_t& events) {
  if (!open_) {
    if (!meet_all()) return false;
    recycle();
    open_ = true;
    const size_t staging = size_t((group_.size() - 1) * parts_.window * parts_.bytes);
    if (spec_.scatters && group_.staging.size() < staging) group_.staging.resize(staging);
    for (int r = 0; r < group_.size(); ++r)
      if (r != group_.rank) open(r);
  }
  bool finished = true;
  for (int step = 1; step < group_.size(); ++step) {
    Lane& lane = lanes_[size_t((group_.rank + step) % group_.size())];
    // A part that has left may be overwritten by its sum; one that is summed may go out.
    constexpr int64_t kAll = INT64_MAX;
    lane.summands_out.advance(kAll, events);
    lane.summands_in.advance(summed_ + parts_.window, events);
    lane.theirs_in.advance(spec_.scatters ? lane.summands_out.done() : kAll, events);
    lane.own_out.advance(spec_.scatters ? summed_ : kAll, events);
    finished = finished && lane.finished();
  }
  if (spec_.scatters) sum_parts();
  return finished && (!spec_.scatters || summed_ * parts_.bytes >= share_bytes(group_.rank));
}

void MpiExchange::open(int r) {
  Lane& lane = lanes_[size_t(r)];
  const auto transfer = [&](bool receives, int tag, std::byte* data, int64_t bytes, bool cycles) {
    return MpiTransfer({.comm = group_.comm,
                        .peer = r,
                        .tag = tag,
                        .receives = receives,
                        .data = data,
                        .bytes = bytes,
                        .parts = parts_,
                        .cycles = cycles});
  };
  if (spec_.scatters) {
    lane.summands_out = transfer(false, kSummands, share(r), share_bytes(r), false);
    lane.summands_in = transfer(true, kSummands, staged(r), share_bytes(group_.rank), true);
  }
  if (spec_.gathers) {
    lane.own_out = transfer(false, kSums, spec_.own, share_bytes(group_.rank), false);
    lane.theirs_in = transfer(true, kSums, share(r), share_bytes(r), false);
  }
}

void MpiExchange::sum_parts() {
  const auto has_come = [&](int r) { return r == group_.rank || lanes_[size_t(r)].summands_in.done() > summed_; };
  const int64_t bytes = share_bytes(group_.rank);
  for (; summed_ * parts_.bytes < bytes; ++summed_) {
    const int64_t first = summed_ * parts_.bytes;
    for (int r = 0; r < group_.size(); ++r) {
      if (!has_come(r)) return;
      operands_[size_t(r)] = r == group_.rank ? share(r) + first : staged(r) + summed_ % parts_.window * parts_.bytes;
    }
    sum_ranks(operands_, call.dtype, std::min(parts_.bytes, bytes - first) / size_of(call.dtype), spec_.own + first);
  }
}

bool MpiExchange::Lane::finished() const {
  return summands_out.finished() && summands_in.finished() && own_out.finished() && theirs_in.finished();
}

std::byte* MpiExchange::share(int r) const { return spec_.base + spec_.first[size_t(r)] * size_of(call.dtype); }
int64_t MpiExchange::share_bytes(int r) const {
  return (spec_.first[size_t(r) + 1] - spec_.first[size_t(r)]) * size_of(call.dtype);
}
std::byte* MpiExchange::staged(int r) const {
  const int place = r < group_.rank ? r : r - 1;
  return group_.staging.data() + place * parts_.window * parts_.bytes;
}

// --- messages ---

MpiTransfer MessageOperation::transfer(int peer, bool receives) const {
  return MpiTransfer({.comm = group_.comm,
                      .peer = peer,
                      .tag = tag_of(call.number),
                      .receives = receives,
                      .data = bytes_.data(),
                      .bytes = int64_t(bytes_.size()),
                      .parts = MpiGroup::parts_of_copy()});
}

SendOperation::SendOperation(MpiGroup& group, int to, const CommCall& call, std::span<std::byte> bytes)
    : MessageOperation(group, call, bytes) {
  open_ = is_small();
  group.hub.post().send(call.peer, Note::of(NoteKind::send, group.index, call), open_ ? bytes : std::span<std::byte>());
  if (!open_) transfer_ = transfer(to, false);
}

bool SendOperation::advance(int64_t& events) {
  if (!open_) {  // receives become ready in the order of the messages
    LetterPtr ready = group_.hub.take(NoteKind::ready, group_.index, call.peer);
    if (!ready) return false;
    if (ready->note.number != call.number)
      group_.hub.fail(fmt::format("the ranks do not agree: rank {} is in {}, rank {} is in {}", group_.hub.rank(),
                                  call.to_string(), call.peer, ready->note.call().to_string()));
    group_.hub.post().recycle(std::move(ready));
    open_ = true;
  }
  transfer_.advance(INT64_MAX, events);
  return transfer_.finished();
}

ReceiveOperation::ReceiveOperation(MpiGroup& group, int from, const CommCall& call, std::span<std::byte> bytes)
    : MessageOperation(group, call, bytes), from_(from) {
  if (!is_small()) group.hub.post().send(call.peer, Note::of(NoteKind::ready, group.index, call));
}

bool ReceiveOperation::advance(int64_t& events) {
  if (!open_) {
    LetterPtr letter = group_.hub.take(NoteKind::send, group_.index, call.peer);
    if (!letter) return false;
    const CommCall theirs = letter->note.call();
    if (theirs.dtype != call.dtype || theirs.elements != call.elements)
      group_.hub.fail(fmt::format("the ranks do not agree: rank {} is in {}, rank {} is in {}", call.peer,
                                  theirs.to_string(), group_.hub.rank(), call.to_string()));
    open_ = true;
    if (is_small())
      std::memcpy(bytes_.data(), letter->payload, bytes_.size());
    else
      transfer_ = transfer(from_, true);
    group_.hub.post().recycle(std::move(letter));
  }
  transfer_.advance(INT64_MAX, events);
  return transfer_.finished();
}

}  // namespace weft
