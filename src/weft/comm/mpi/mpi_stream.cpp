#include "weft/comm/mpi/mpi_stream.h"

#include <algorithm>

#include "weft/comm/mpi/mpi_post.h"

namespace weft {

ChunkStream::ChunkStream(const Spec& spec)
    : spec_(spec), requests_(size_t(std::min(num_chunks(), int64_t(spec.chunks.window)))) {}

int64_t ChunkStream::num_chunks() const {
  return spec_.bytes == 0 ? 0 : (spec_.bytes + spec_.chunks.bytes - 1) / spec_.chunks.bytes;
}

void ChunkStream::advance(int64_t limit, int64_t& events) {
  limit = std::min(limit, num_chunks());
  for (; done_ < begun_; ++done_, ++events) {
    int done = 0;
    check_mpi(MPI_Test(&requests_[size_t(done_ % spec_.chunks.window)], &done, MPI_STATUS_IGNORE), "move a chunk");
    if (done == 0) break;
  }
  for (; begun_ < limit && begun_ - done_ < spec_.chunks.window; ++begun_) begin(begun_);
}

void ChunkStream::begin(int64_t chunk) {
  const int64_t first = chunk * spec_.chunks.bytes;
  const int bytes = int(std::min(spec_.chunks.bytes, spec_.bytes - first));
  std::byte* data = spec_.data + (spec_.cycles ? chunk % spec_.chunks.window * spec_.chunks.bytes : first);
  MPI_Request* request = &requests_[size_t(chunk % spec_.chunks.window)];
  if (spec_.receives)
    check_mpi(MPI_Irecv(data, bytes, MPI_BYTE, spec_.peer, spec_.tag, spec_.comm, request), "receive a chunk");
  else
    check_mpi(MPI_Isend(data, bytes, MPI_BYTE, spec_.peer, spec_.tag, spec_.comm, request), "send a chunk");
}

}  // namespace weft
