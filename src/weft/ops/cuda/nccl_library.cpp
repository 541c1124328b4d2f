#include "weft/ops/cuda/nccl_library.h"

#include <dlfcn.h>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr const char* kFile = "libnccl.so.2";
constexpr int kOldest = NCCL_VERSION(2, 18, 1);  // the first whose communicators can be told how much of a GPU to take

template <class Function>
void find(void* file, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(file, name));
  if (function == nullptr) throw Error(fmt::format("{} has no {}: it is too old, or broken", kFile, name));
}

// Never closed: its threads run until the program ends.
NcclLibrary load() {
  void* const file = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr)
    throw Error(
        fmt::format("NCCL cannot be loaded: {}; install it (pip install nvidia-nccl-cu{}), and let "
                    "LD_LIBRARY_PATH lead to its folder",
                    dlerror(), CUDART_VERSION / 1000));
  NcclLibrary all = {};
  find(file, all.get_version, "ncclGetVersion");
  find(file, all.get_unique_id, "ncclGetUniqueId");
  find(file, all.comm_init_rank_config, "ncclCommInitRankConfig");
  find(file, all.comm_destroy, "ncclCommDestroy");
  find(file, all.comm_abort, "ncclCommAbort");
  find(file, all.comm_get_async_error, "ncclCommGetAsyncError");
  find(file, all.get_error_string, "ncclGetErrorString");
  find(file, all.get_last_error, "ncclGetLastError");
  find(file, all.group_start, "ncclGroupStart");
  find(file, all.group_end, "ncclGroupEnd");
  find(file, all.send, "ncclSend");
  find(file, all.recv, "ncclRecv");
  find(file, all.all_gather, "ncclAllGather");
  if (all.get_version(&all.version) != ncclSuccess || all.version < kOldest)
    throw Error(fmt::format("{} is of version {}, and weft needs {} (2.18.1) or newer", kFile, all.version, kOldest));
  return all;
}

}  // namespace

void NcclLibrary::check(ncclResult_t status, const char* what) const {
  if (status != ncclSuccess && status != ncclInProgress)
    throw CommError(fmt::format("cannot {}: {}", what, text_of(status)));
}

std::string NcclLibrary::text_of(ncclResult_t status) const {
  const char* const last = get_last_error(nullptr);
  return fmt::format("NCCL: {}{}{}", get_error_string(status), last != nullptr && *last != '\0' ? ": " : "",
                     last != nullptr ? last : "");
}

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = load();
  return library;
}

}  // namespace weft
