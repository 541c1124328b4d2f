// A run of memory on its way to or from one peer, in parts, a few of them at a time.
#pragma once
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

class MpiTransfer {
 public:
  struct Parts {
    int64_t bytes;  // of each but the last
    int window;     // under way at most
  };
  struct Spec {
    MPI_Comm comm;
    int peer, tag;
    bool receives;
    std::byte* data;  // of all parts; where `cycles`, of as many as are under way, used in turn
    int64_t bytes;
    Parts parts;
    bool cycles = false;
  };
  MpiTransfer() = default;  // of nothing
  explicit MpiTransfer(const Spec& spec);

  int64_t num_parts() const;
  int64_t done() const { return done_; }  // parts 0 .. done - 1 have arrived, or may be overwritten
  bool finished() const { return done_ == num_parts(); }
  bool under_way() const { return done_ < begun_; }
  // Begins parts below `limit`, and counts those that have finished in `events`. Throws CommError.
  void advance(int64_t limit, int64_t& events);

 private:
  void begin(int64_t part);

  Spec spec_ = {};
  std::vector<MPI_Request> requests_;
  int64_t begun_ = 0, done_ = 0;
};

}  // namespace weft
