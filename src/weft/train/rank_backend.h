// The backend of one rank and its mesh, each of which knows of the other: a device that runs ops later must be waited
// for before ranks exchange tensors, and collectives go on while ops run.
#pragma once
#include <functional>
#include <memory>

#include "weft/device/arena.h"
#include "weft/train/machine.h"

namespace weft {

// A backend around a rank's own.
using DecorateBackend = std::function<std::unique_ptr<Backend>(Backend& inner, const ProcessMesh& mesh)>;

class RankBackend {
 private:
  std::function<void()> finish_ = [] {};  // waits for the backend, once there is one

 public:
  // On the rank's own machine; `workspace_bytes` for the temporaries of kernels. Collective where the machine joins its
  // ranks.
  RankBackend(const Machine& machine, const ProcessMesh& mesh, int64_t workspace_bytes,
              const DecorateBackend& decorate = {});
  RankBackend(const RankBackend&) = delete;
  RankBackend& operator=(const RankBackend&) = delete;
  // To be called by the destructor of who owns memory that the backend may still use: returns when it does not.
  void end() noexcept;

  const ProcessMesh mesh;  // waits for the backend, if that is asynchronous
  Arena workspace;

 private:
  std::unique_ptr<Backend> device_, decorated_, polled_;

 public:
  Backend& backend;
};

}  // namespace weft
