#include "weft/train/rank_backend.h"

#include <exception>
#include <utility>

#include "weft/base/error.h"
#include "weft/comm/through_host.h"
#include "weft/ops/polled.h"

namespace weft {
namespace {

std::unique_ptr<Backend> polled(Backend& inner, const ProcessMesh& mesh) {
  if (mesh.progress == nullptr) return nullptr;
  Polled::Call lend;
  if (mesh.progress->lends()) lend = [progress = mesh.progress] { progress->lend(); };
  return std::make_unique<Polled>(inner, std::move(lend), mesh.poller());
}

}  // namespace

RankBackend::RankBackend(const Machine& machine, const ProcessMesh& of_mesh, int64_t workspace_bytes,
                         const DecorateBackend& decorate)
    : mesh(machine.late ? after(machine.join(of_mesh), finish_) : machine.join(of_mesh)),
      workspace("workspace", workspace_bytes, machine.memory),
      device_(machine.make_backend(workspace)),
      decorated_(decorate ? decorate(*device_, mesh) : nullptr),
      polled_(polled(decorated_ ? *decorated_ : *device_, mesh)),
      backend(polled_      ? *polled_
              : decorated_ ? *decorated_
                           : *device_) {
  WEFT_CHECK(machine.devices.empty(), "the machine of all ranks, not of this one (Machine::of_rank)");
  finish_ = [this] { backend.wait_all(); };
  if (!mesh.progress || !mesh.progress->is_by_devices() || backend.issued() == nullptr) return;
  device_->issued()->call_before_waits([progress = mesh.progress] { progress->settle(); });
  mesh.progress->order_by([this] { return backend.issued()->issue_all(); });
}

void RankBackend::end() noexcept {
  // If this fails, a device that waits for another would never finish, nor free its memory.
  const auto give_up = [this] {
    if (mesh.progress) mesh.progress->give_up();
    if (IssuedOps* const issued = device_->issued()) issued->call_before_waits({});
  };
  if (std::uncaught_exceptions() > 0) give_up();
  try {
    backend.wait_all();
  } catch (...) {  // of a device that failed, or of another rank: whoever waited before has been told
    give_up();
    try {
      device_->wait_all();
    } catch (...) {}
  }
}

}  // namespace weft
