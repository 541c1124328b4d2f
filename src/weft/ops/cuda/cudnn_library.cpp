#include "weft/ops/cuda/cudnn_library.h"

#include <dlfcn.h>

#include <algorithm>

namespace weft {
namespace {

constexpr const char* kFile = "libcudnn.so.9";
constexpr size_t kOldest = 91100;  // 9.11.0: attention of older ones has errors of its own

}  // namespace

// Never unloaded, as its kernels stay loaded.
CudnnLibrary::CudnnLibrary() : library_(dlopen(kFile, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
  if (library_ == nullptr) throw CudnnError(fmt::format("cannot load cuDNN: {}", dlerror()));
}
CudnnLibrary::~CudnnLibrary() { dlclose(library_); }

template <class Function>
void CudnnLibrary::find(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(library_, name));
  if (function == nullptr) throw CudnnError(fmt::format("cannot load cuDNN: {} has no {}", kFile, name));
}

std::shared_ptr<const CudnnLibrary> CudnnLibrary::open() {
  std::shared_ptr<CudnnLibrary> made(new CudnnLibrary());
  made->find(made->get_version_, "cudnnGetVersion");
  made->find(made->error_text_, "cudnnGetErrorString");
  made->find(made->last_error_, "cudnnGetLastErrorString");
  made->find(made->create, "cudnnCreate");
  made->find(made->destroy, "cudnnDestroy");
  made->find(made->set_stream, "cudnnSetStream");
  made->find(made->create_descriptor, "cudnnBackendCreateDescriptor");
  made->find(made->destroy_descriptor, "cudnnBackendDestroyDescriptor");
  made->find(made->finalize, "cudnnBackendFinalize");
  made->find(made->set_attribute, "cudnnBackendSetAttribute");
  made->find(made->get_attribute, "cudnnBackendGetAttribute");
  made->find(made->execute, "cudnnBackendExecute");
  if (made->get_version_() < kOldest)
    throw CudnnError(fmt::format("cuDNN {} is here, and its attention is used from 9.11 on", made->version()));
  return made;
}

std::string CudnnLibrary::version() const {
  const size_t version = get_version_();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void CudnnLibrary::check(cudnnStatus_t status, const char* what) const {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::string says(1024, '\0');
  last_error_(says.data(), says.size());
  says.resize(std::min(says.size(), says.find('\0')));
  while (!says.empty() && says.back() == '\n') says.pop_back();
  throw CudnnError(fmt::format("cannot {}: {}{}{}", what, error_text_(status), says.empty() ? "" : ": ", says));
}

CudnnDescriptor::CudnnDescriptor(Cudnn cudnn, cudnnBackendDescriptorType_t type, const char* what)
    : cudnn_(std::move(cudnn)), what_(what) {
  cudnn_->check(cudnn_->create_descriptor(type, &raw_), what_);
}

CudnnDescriptor& CudnnDescriptor::set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                          int64_t count, const void* values) {
  cudnn_->check(cudnn_->set_attribute(raw_, name, type, count, values), what_);
  return *this;
}

CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, const std::vector<CudnnDescriptor>& others) {
  std::vector<cudnnBackendDescriptor_t> all;
  for (const CudnnDescriptor& one : others) all.push_back(one.raw_);
  return set_all(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, int64_t(all.size()), all.data());
}

CudnnDescriptor& CudnnDescriptor::finish() {
  cudnn_->check(cudnn_->finalize(raw_), what_);
  return *this;
}

int64_t CudnnDescriptor::count_of(cudnnBackendAttributeName_t name) const {
  int64_t count = 0;
  cudnn_->check(cudnn_->get_attribute(raw_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr), what_);
  return count;
}

int64_t CudnnDescriptor::get(cudnnBackendAttributeName_t name, std::vector<CudnnDescriptor>& others) const {
  std::vector<cudnnBackendDescriptor_t> all;
  for (const CudnnDescriptor& one : others) all.push_back(one.raw_);
  int64_t count = 0;
  cudnn_->check(
      cudnn_->get_attribute(raw_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, int64_t(all.size()), &count, all.data()), what_);
  return std::min(count, int64_t(all.size()));
}

}  // namespace weft
