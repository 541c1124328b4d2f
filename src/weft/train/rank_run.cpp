#include "weft/train/rank_run.h"

#include <exception>

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

RankRun::RankRun(RunPlan of_rank, const Machine& machine, const ProcessMesh& of_mesh, const DecorateBackend& decorate)
    : mesh(machine.late ? after(machine.join(of_mesh), finish_) : machine.join(of_mesh)),
      plan(std::move(of_rank)),
      arenas(plan.memory.persistent, machine.memory),
      state(plan.model, plan.step, *plan.optimizer, arenas, mesh),
      workspace("workspace", plan.memory.workspace, machine.memory),
      late_(machine.late),
      device_(machine.make_backend(workspace)),
      decorated_(decorate ? decorate(*device_, mesh) : nullptr),
      polled_(polled(decorated_ ? *decorated_ : *device_, mesh)),
      backend(polled_      ? *polled_
              : decorated_ ? *decorated_
                           : *device_),
      executor(state, plan.step, plan.memory, {backend, mesh, machine.memory}) {
  WEFT_CHECK(machine.devices.empty(), "the machine of all ranks, not of this one (Machine::of_rank)");
  finish_ = [this] { backend.wait_all(); };
  if (!mesh.progress || !mesh.progress->is_by_devices() || backend.queue() == nullptr) return;
  device_->queue()->call_before_waits([progress = mesh.progress] { progress->settle(); });
  mesh.progress->order_by([this] { return backend.queue()->issue_all(); });
}

RankRun::~RankRun() {
  // If this fails, a device that waits for another would never finish, nor free its memory.
  const auto give_up = [this] {
    if (mesh.progress) mesh.progress->give_up();
    if (DeviceQueue* const queue = device_->queue()) queue->call_before_waits({});
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

// The workspace may be used less: a larger evaluation may own its peak; the plan counts whole sequences, where a device
// may attend to a batch's documents by other kernels, and ranks that gather keys to fewer keys at once; and experts may
// have fewer rows than there is room for.
void RankRun::check_used() const {
  executor.check_used();
  WEFT_CHECK(arenas.peak() == plan.memory.persistent, "weights, gradients and state use {} bytes, {} planned",
             arenas.peak().total(), plan.memory.persistent.total());
  const bool gathers = plan.step.model.layers.context.keys == ContextPlan::Keys::gathered;
  const bool may_use_less = plan.step.evaluates || late_ || gathers || plan.step.mesh.ep > 1;
  WEFT_CHECK(workspace.peak() == plan.memory.workspace || (may_use_less && workspace.peak() < plan.memory.workspace),
             "workspace: {} bytes used, {} planned", workspace.peak(), plan.memory.workspace);
}

int64_t RankRun::peak_bytes() const { return arenas.peak().total() + workspace.peak() + executor.peak_bytes(); }

}  // namespace weft
