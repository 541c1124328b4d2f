// State that one rank's communicators share: its letters, the operations under way, and how it waits.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "weft/comm/mpi/mpi_post.h"

namespace weft {

// The ranks on this host as processes: whether they live and run.
class HostPeers {
 public:
  // Collective. Ranks see each other if they share the host's name and the process table.
  explicit HostPeers(MPI_Comm ranks);

  bool on_one_host(const std::vector<int>& ranks) const;
  int here() const { return int(here_.size()); }                // ranks on this host, this one among them
  const std::vector<int>& ranks_here() const { return here_; }  // ascending
  int cores() const { return cores_; }                          // that this process may use
  enum class Is { unknown, running, stopped, gone };
  Is state(int rank) const;          // unknown: on another host
  std::string name(int rank) const;  // "process 123 on host a"

 private:
  struct Card {
    char host[64] = "";
    int64_t pid = 0;
    uint64_t processes = 0;  // identifies the process table (PID namespace)
    bool operator==(const Card&) const = default;
  };
  bool sees(const Card& other) const;
  std::vector<Card> cards_;
  std::vector<int> here_;
  int rank_ = 0, cores_ = 1;
};

// A call that is not finished. It makes progress whenever this rank is in a call of any communicator.
class Operation {
 public:
  explicit Operation(const CommCall& call) : call(call) {}
  virtual ~Operation() = default;
  // Makes what progress it can without waiting, and counts it in `events`. True once finished. Throws CommError.
  virtual bool advance(int64_t& events) = 0;
  virtual bool under_way() const { return false; }  // is a part of a tensor on its way, here or from here
  virtual std::vector<int> missing() const = 0;     // world ranks that it waits for

  const CommCall call;
  bool finished = false;
};

// To be used by one thread at a time. After a CommError it throws the same again at every call.
class MpiHub {
 public:
  struct Patience {
    double timeout_s = 600;  // longest wait without any event while the awaited ranks live
    double stopped_s = 10;   // for a rank of this host that a signal has stopped
  };
  MpiHub(MPI_Comm control, HostPeers peers, const Patience& patience);

  int rank() const { return post_.rank(); }  // of the world
  int size() const { return post_.size(); }
  MpiPost& post() { return post_; }
  int add_group();
  // The oldest letter of this kind (call, send, ready) from this rank in this group that nobody has taken; or none.
  LetterPtr take(NoteKind kind, int group, int from);

  // Collectives of a group run one after the other, messages concurrently.
  void begin(std::shared_ptr<Operation> operation, int group);
  void poll();  // lets everything go on that can
  // The same, from a rank that computes and will call again only after a while.
  void poll_between();
  bool idle() const;  // nothing is under way
  void wait(const Operation& operation);
  // The operation's tensors end before it has finished. Transfers under way complete first, unless that takes seconds;
  // no other begins.
  void abandon(const Operation& operation) noexcept;
  enum class Failure : uint8_t { other, hang };
  // Tells all ranks, then throws it: a HangError where it is a hang.
  [[noreturn]] void fail(const std::string& why, Failure kind = Failure::other);
  void tell_failure(const std::string& why, Failure kind = Failure::other);
  // Returns when every rank has called it. Throws CommError where one cannot.
  void finish();
  void close() { post_.close(); }  // before MPI ends

 private:
  struct Group {
    std::deque<std::shared_ptr<Operation>> collectives;  // the first of them moves
    std::vector<std::shared_ptr<Operation>> messages;
    std::vector<std::vector<LetterPtr>> letters;  // by kind, then by rank
  };
  Group& group(int index);
  void move_all();
  void arrived(int from, LetterPtr letter);
  void check_alive() const {
    if (!failure_.empty()) throw_failure();
  }
  [[noreturn]] void throw_failure() const {
    if (failed_as_ == Failure::hang) throw HangError(failure_);
    throw CommError(failure_);
  }
  static void rest(double still_s);
  void look_around(const Operation& operation, double still_s);
  void tell_status(NoteKind kind, const CommCall& call);
  std::string stuck() const;
  bool all_ended() const;
  void check_peers(const Operation& operation, double still_s);

  MpiPost post_;
  HostPeers peers_;
  const Patience patience_;
  const bool crowded_;  // more ranks on this host than cores
  std::deque<Group> groups_;
  int num_groups_ = 0;        // made here; the others have letters only
  std::vector<Note> status_;  // the last of each rank; of kind call: none yet
  std::string failure_;
  Failure failed_as_ = Failure::other;
  int64_t events_ = 0;
};

}  // namespace weft
