#include "weft/train/rank_run.h"

#include <exception>

#include "weft/base/error.h"
#include "weft/comm/after.h"
#include "weft/ops/polled.h"

namespace weft {

RankRun::RankRun(RunPlan of_rank, const Machine& machine, const ProcessMesh& of_mesh, const DecorateBackend& decorate)
    : mesh(machine.late ? after(machine.join(of_mesh), finish_) : machine.join(of_mesh)),
      plan(std::move(of_rank)),
      arenas(plan.memory.persistent, machine.memory),
      state(plan.model, plan.step, *plan.optimizer, arenas, mesh),
      workspace("workspace", plan.memory.workspace, machine.memory),
      late_(machine.late),
      kernels_(machine.make_backend(workspace)),
      decorated_(decorate ? decorate(*kernels_, mesh) : nullptr),
      polled_(mesh.poll ? std::make_unique<Polled>(decorated_ ? *decorated_ : *kernels_, mesh.lend, mesh.poll)
                        : nullptr),
      backend(polled_      ? *polled_
              : decorated_ ? *decorated_
                           : *kernels_),
      executor(state, plan.step, plan.memory, {backend, mesh, machine.memory}) {
  WEFT_CHECK(machine.devices.empty(), "the machine of all ranks, not of this one (Machine::of_rank)");
  finish_ = [this] { backend.wait_all(); };
  if (!mesh.order_by || backend.issue_all() == nullptr) return;
  kernels_->call_before_waits(mesh.settle);
  mesh.order_by([this] { return backend.issue_all(); });
}

RankRun::~RankRun() {
  // If this fails, a device that waits for another would never finish, nor free its memory.
  const auto give_up = [this] {
    if (mesh.give_up) mesh.give_up();
    kernels_->call_before_waits({});
  };
  if (std::uncaught_exceptions() > 0) give_up();
  try {
    backend.wait_all();
  } catch (...) {  // of a device that failed, or of another rank: whoever waited before has been told
    give_up();
    try {
      kernels_->wait_all();
    } catch (...) {}
  }
}

// The workspace may be used less: a larger evaluation may own its peak, and a device may attend to a batch's documents
// by other kernels than to whole sequences, which the plan counts.
void RankRun::check_used() const {
  executor.check_used();
  WEFT_CHECK(arenas.peak() == plan.memory.persistent, "weights, gradients and state use {} bytes, {} planned",
             arenas.peak().total(), plan.memory.persistent.total());
  const bool may_use_less = plan.step.evaluates || late_;
  WEFT_CHECK(may_use_less || workspace.peak() == plan.memory.workspace, "workspace: {} bytes used, {} planned",
             workspace.peak(), plan.memory.workspace);
}

int64_t RankRun::peak_bytes() const { return arenas.peak().total() + workspace.peak() + executor.peak_bytes(); }

}  // namespace weft
