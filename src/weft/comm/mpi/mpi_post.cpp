#include "weft/comm/mpi/mpi_post.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace weft {

static_assert(sizeof(Note) == 128, "the payload begins at a cache line");

Note Note::of(NoteKind kind, int group, const CommCall& call) {
  Note n{.kind = kind,
         .group = uint8_t(group),
         .dtype = call.dtype,
         .peer = call.peer,
         .line = call.site.line,
         .number = call.number,
         .elements = call.elements};
  const std::string_view op = call.op, file = call.site.file;
  op.copy(n.op, std::min(op.size(), sizeof n.op - 1));
  const size_t length = std::min(file.size(), sizeof n.file - 1);
  file.copy(n.file, length, file.size() - length);
  return n;
}

CommCall Note::call() const {
  return {.op = op, .number = number, .dtype = dtype, .elements = elements, .peer = peer, .site = {file, line}};
}

namespace {

constexpr int kTag = 1;
constexpr size_t kPosted = 32;  // receives that are ready before anyone has asked for them

// A hash of the n-th message of a pair of ranks: sums of marks are equal only if the messages are.
uint64_t mark(int from, int to, uint32_t n) {
  uint64_t x = uint64_t(uint32_t(from)) << 32 | uint32_t(to);
  for (int round = 0; round < 2; ++round) {
    x += 0x9e3779b97f4a7c15u + n;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
  }
  return x;
}

}  // namespace

void check_mpi(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw CommError(fmt::format("MPI cannot {}: {}", what, std::string(text, size_t(length))));
}

MpiPost::MpiPost(MPI_Comm ranks) : comm_(ranks) {
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  num_sent_.resize(size_t(size_));
  num_received_.resize(size_t(size_));
  incoming_.resize(kPosted);
  for (Incoming& incoming : incoming_) expect(incoming);
}

// Not closed, as in a process that ends after an error: MPI may still write into letters, which therefore stay.
MpiPost::~MpiPost() {
  for (Incoming& incoming : incoming_) static_cast<void>(incoming.letter.release());
  for (Outgoing& o : outgoing_) static_cast<void>(o.letter.release());
}

void MpiPost::close() {
  for (Incoming& incoming : incoming_) {
    MPI_Cancel(&incoming.request);
    MPI_Wait(&incoming.request, MPI_STATUS_IGNORE);  // at once: it is cancelled, or filled
    incoming.letter.reset();
  }
}

LetterPtr MpiPost::blank() {
  if (free_.empty()) return LetterPtr(new Letter);  // not cleared: payloads are written before they are read
  LetterPtr letter = std::move(free_.back());
  free_.pop_back();
  return letter;
}

void MpiPost::expect(Incoming& incoming) {
  incoming.letter = blank();
  check_mpi(
      MPI_Irecv(incoming.letter.get(), int(sizeof(Letter)), MPI_BYTE, MPI_ANY_SOURCE, kTag, comm_, &incoming.request),
      "receive a note");
}

void MpiPost::send(int to, Note note, std::span<const std::byte> payload) {
  WEFT_CHECK(payload.size() <= Letter::kPayload, "a payload of {} bytes", payload.size());
  all_sent();  // takes back what can be used again
  LetterPtr letter = blank();
  note.payload_bytes = int32_t(payload.size());
  letter->note = note;
  if (!payload.empty()) std::memcpy(letter->payload, payload.data(), payload.size());
  if (is_counted(note.kind)) sent_marks_ += mark(rank_, to, num_sent_[size_t(to)]++);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(letter.get(), int(sizeof(Note) + payload.size()), MPI_BYTE, to, kTag, comm_, &request),
            "send a note");
  outgoing_.push_back({request, std::move(letter)});
}

bool MpiPost::poll(const std::function<void(int from, LetterPtr letter)>& take) {
  bool any = false;
  for (;;) {
    Incoming& incoming = incoming_[oldest_];
    int done = 0;
    MPI_Status status;
    check_mpi(MPI_Test(&incoming.request, &done, &status), "receive a note");
    if (done == 0) break;
    LetterPtr letter = std::move(incoming.letter);
    expect(incoming);
    oldest_ = (oldest_ + 1) % incoming_.size();
    const int from = status.MPI_SOURCE;
    if (is_counted(letter->note.kind)) received_marks_ += mark(from, rank_, num_received_[size_t(from)]++);
    any = any || (letter->note.kind != NoteKind::waiting && letter->note.kind != NoteKind::ended);
    take(from, std::move(letter));
  }
  return any;
}

bool MpiPost::all_sent() {
  for (size_t i = 0; i < outgoing_.size();) {
    int done = 0;
    check_mpi(MPI_Test(&outgoing_[i].request, &done, MPI_STATUS_IGNORE), "send a note");
    if (done == 0) {
      ++i;
      continue;
    }
    recycle(std::move(outgoing_[i].letter));
    outgoing_[i] = std::move(outgoing_.back());
    outgoing_.pop_back();
  }
  return outgoing_.empty();
}

}  // namespace weft
