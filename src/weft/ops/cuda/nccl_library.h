// NCCL, loaded only when several processes have a GPU each; the module runs without it.
#pragma once
#include <nccl.h>

#include <string>

namespace weft {

struct NcclLibrary {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config;
  decltype(&ncclCommDestroy) comm_destroy;
  decltype(&ncclCommAbort) comm_abort;
  decltype(&ncclCommGetAsyncError) comm_get_async_error;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetLastError) get_last_error;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;
  decltype(&ncclAllGather) all_gather;
  int version = 0;  // 22809: 2.28.9

  // Throws CommError "cannot send to a GPU: ..." with what NCCL says.
  void check(ncclResult_t status, const char* what) const;
  std::string text_of(ncclResult_t status) const;
};

// Loads it at the first call. Throws Error that says what is missing, and what to do.
const NcclLibrary& nccl_library();

}  // namespace weft
