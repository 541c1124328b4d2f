// cuDNN, loaded when it is wanted: the module for GPUs runs where the library is not installed.
#pragma once
#include <cudnn_graph.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "weft/base/error.h"

namespace weft {

class CudnnError : public Error {
 public:
  using Error::Error;
};

// cuDNN's functions. The library stays open while this, or anything made from it, lives.
class CudnnLibrary {
 public:
  // Throws CudnnError where there is none, or one that is too old.
  static std::shared_ptr<const CudnnLibrary> open();
  CudnnLibrary(const CudnnLibrary&) = delete;
  CudnnLibrary& operator=(const CudnnLibrary&) = delete;
  ~CudnnLibrary();

  std::string version() const;  // "9.19.0"
  // Throws CudnnError "cannot ...: CUDNN_STATUS_..., what the library says".
  void check(cudnnStatus_t status, const char* what) const;

  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

 private:
  CudnnLibrary();
  template <class Function>
  void find(Function*& function, const char* name);

  void* library_ = nullptr;
  decltype(&cudnnGetVersion) get_version_ = nullptr;
  decltype(&cudnnGetErrorString) error_text_ = nullptr;
  decltype(&cudnnGetLastErrorString) last_error_ = nullptr;
};
using Cudnn = std::shared_ptr<const CudnnLibrary>;

// A cuDNN descriptor: set its attributes, finalize it, then use it.
class CudnnDescriptor {
 public:
  CudnnDescriptor(Cudnn cudnn, cudnnBackendDescriptorType_t type, const char* what);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : cudnn_(std::move(other.cudnn_)), what_(other.what_), raw_(std::exchange(other.raw_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;
  ~CudnnDescriptor() {
    if (raw_ != nullptr) cudnn_->destroy_descriptor(raw_);
  }

  template <class T>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    return set_all(name, type, 1, &value);
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.raw_);
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const std::vector<CudnnDescriptor>& others);
  CudnnDescriptor& set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                           const void* values);
  CudnnDescriptor& finish();

  template <class T>
  T get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
    T value = {};
    int64_t count = 0;
    cudnn_->check(cudnn_->get_attribute(raw_, name, type, 1, &count, &value), what_);
    return value;
  }
  int64_t count_of(cudnnBackendAttributeName_t name) const;  // of descriptors
  // Into `others`, which are there already; returns how many there are.
  int64_t get(cudnnBackendAttributeName_t name, std::vector<CudnnDescriptor>& others) const;
  template <class T>
  std::vector<T> get_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most) const {
    std::vector<T> values(static_cast<size_t>(most));
    int64_t count = 0;
    cudnn_->check(cudnn_->get_attribute(raw_, name, type, most, &count, values.data()), what_);
    values.resize(size_t(std::min(count, most)));
    return values;
  }
  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  Cudnn cudnn_;
  const char* what_;  // "describe a tensor"
  cudnnBackendDescriptor_t raw_ = nullptr;
};

}  // namespace weft
