// What ranks tell each other beside the tensors: notes of fixed form, small tensors within them.
#pragma once
#include <memory>

#include "weft/comm/rank_watch.h"

namespace weft {

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
  bool still = false;  // of waiting: no part of a tensor is under way to or from this rank
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

}  // namespace weft
