#include "weft/comm/mpi/mpi_transfer.h"

#include <algorithm>

#include "weft/comm/mpi/mpi_post.h"

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

}  // namespace weft
