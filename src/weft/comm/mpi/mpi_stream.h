// A run of memory on its way to or from one peer, in chunks, a few of them at a time.
#pragma once
#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft {

class ChunkStream {
 public:
  static constexpr int kWindow = 4;  // chunks under way
  struct Spec {
    MPI_Comm comm;
    int peer, tag;
    bool receives;
    std::byte* data;  // of all chunks; where `cycles`, of kWindow chunks, which are used in turn
    int64_t bytes, chunk_bytes;
    bool cycles = false;
  };
  ChunkStream() = default;  // of nothing
  explicit ChunkStream(const Spec& spec) : spec_(spec) {}

  int64_t num_chunks() const;
  int64_t done() const { return done_; }  // chunks 0 .. done - 1 have arrived, or may be overwritten
  bool finished() const { return done_ == num_chunks(); }
  bool under_way() const { return done_ < begun_; }
  // Begins chunks below `limit`, and sees which have finished; counts those in `events`. Throws CommError.
  void advance(int64_t limit, int64_t& events);

 private:
  void begin(int64_t chunk);

  Spec spec_ = {};
  std::array<MPI_Request, kWindow> requests_{};
  int64_t begun_ = 0, done_ = 0;
};

}  // namespace weft
