// Carries letters between all ranks, in the order of each sender.
#pragma once
#include <mpi.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "weft/comm/rank_watch.h"

namespace weft {

// What ranks tell each other beside the tensors: notes of fixed form, small tensors within them.
enum class NoteKind : uint8_t {
  call,     // "I am in this collective": to every rank of its group; with the tensor where that is small
  send,     // "I send this"; with the tensor where that is small
  ready,    // "send it: I am in this receive": where it is large
  waiting,  // "I wait in this call": to all, after a second without an event
  ended,    // "I will make no further call": to all
  failed    // "this has happened": to all; the payload is a text
};

// Sent as it lies in memory: all ranks run the same program.
struct Note {
  NoteKind kind = NoteKind::call;
  uint8_t group = 0;  // which of the communicators, counted in the order they were made in
  DType dtype = DType::u8;
  // Of waiting: no part of a tensor is under way to or from this rank. Of failed: it is a HangError.
  bool still = false;
  int32_t peer = -1, line = 0, payload_bytes = 0;
  int64_t number = 0, elements = 0;
  uint64_t sent = 0, received = 0;  // of waiting and ended: what MpiPost says then
  char op[16] = "";
  char file[64] = "";  // its end

  static Note of(NoteKind kind, int group, const CommCall& call);
  CommCall call() const;  // points into the note
};

// What travels: small enough to go without a rendezvous (Open MPI's eager limit in shared memory is 4,096 bytes).
struct alignas(64) Letter {
  static constexpr size_t kPayload = 3840;
  Note note;
  std::byte payload[kPayload];
};
using LetterPtr = std::unique_ptr<Letter>;

// Throws CommError with MPI's own message if `status` is not success.
void check_mpi(int status, const char* what);

// To be used by one thread at a time. Letters are kept and used again: after a while nothing is allocated.
class MpiPost {
 public:
  explicit MpiPost(MPI_Comm ranks);  // used by nobody else; must outlive this
  ~MpiPost();
  MpiPost(const MpiPost&) = delete;
  MpiPost& operator=(const MpiPost&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Copies both; never blocks.
  void send(int to, Note note, std::span<const std::byte> payload = {});
  // Hands over what has come. True if something other than a status (waiting, ended) was among it.
  bool poll(const std::function<void(int from, LetterPtr letter)>& take);
  void recycle(LetterPtr letter) { free_.push_back(std::move(letter)); }
  bool all_sent();  // every letter has left this rank
  void close();     // nothing can come any more
  // Each call, send and ready has a mark that both sides compute. If the marks sent by all ranks and those received by
  // all have equal sums, none is under way.
  uint64_t sent_marks() const { return sent_marks_; }
  uint64_t received_marks() const { return received_marks_; }

 private:
  struct Outgoing {
    MPI_Request request;
    LetterPtr letter;
  };
  struct Incoming {
    MPI_Request request = MPI_REQUEST_NULL;
    LetterPtr letter;
  };
  LetterPtr blank();
  void expect(Incoming& incoming);
  static bool is_counted(NoteKind kind) { return kind <= NoteKind::ready; }

  MPI_Comm comm_;
  int rank_ = 0, size_ = 0;
  std::vector<LetterPtr> free_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;  // receives that are posted; they are filled in turn
  size_t oldest_ = 0;
  std::vector<uint32_t> num_sent_, num_received_;  // by rank
  uint64_t sent_marks_ = 0, received_marks_ = 0;
};

}  // namespace weft
