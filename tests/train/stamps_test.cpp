// When a late device did what, as a step sees it through whatever lies around its backend.
#include "train/golden.h"
#include "train/late_backend.h"
#include "weft/apps/backends.h"
#include "weft/apps/bench_run.h"
#include "weft/ops/checked.h"
#include "weft/ops/polled.h"
#include "weft/ops/ref/ref_backend.h"
#include "weft/ops/traced.h"
#include "weft/records/clock.h"
#include "weft/sharding/param_store.h"
#include "weft/verify/op_log.h"

namespace weft {
namespace {

int64_t clock_ns() { return int64_t(now_s() * 1e9); }

TEST(Stamps, GoThroughEveryDecoratorAsItsQueueDoes) {
  auto made = std::make_unique<testing::LateBackend>(std::make_unique<RefBackend>(1));
  const testing::LateBackend& device = *made;
  const DeviceQueue* const made_queue = made->issued()->issue_all();
  Replayed replayed(std::move(made), [](const std::string&) {});
  Polled polled(replayed, nullptr, [] {});
  Checked checked(polled, {});
  const ParamStore params({}, {});
  OpRecorder recorder(checked, params);
  Traced traced(recorder, clock_ns);
  const int64_t began = clock_ns();
  const Stamp a = traced.issued()->stamp(), b = traced.issued()->stamp();
  ASSERT_NE(a, Stamp::none);
  traced.wait_all();
  const int64_t b_ns = traced.issued()->take_time_ns(b), a_ns = traced.issued()->take_time_ns(a);
  EXPECT_LE(began, a_ns);
  EXPECT_LE(a_ns, b_ns);
  EXPECT_LE(b_ns, clock_ns());
  EXPECT_EQ(device.num_untaken(), 0u);
  EXPECT_EQ(traced.issued()->issue_all(), made_queue);
}

TEST(Stamps, ABackendThatRunsOpsAtOnceHasNone) {
  RefBackend ref(1);
  EXPECT_EQ(ref.issued(), nullptr);
}

// A traced step of a late device waits as often as one that is not.
TEST(StampsSlow, AStepIsTracedWithoutWaitingForItsOps) {
  testing::TempDir dir;
  Recipe recipe = testing::golden_recipe(std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa",
                                         dir / "run", {"run.backend=ref", "run.threads=1", "train.micro_batch_size=2"});
  Machine machine = machine_for(recipe);
  const testing::LateBackend* device = nullptr;
  machine.late = true;
  machine.make_backend = [&, make = machine.make_backend](Arena& workspace) {
    auto made = std::make_unique<testing::LateBackend>(make(workspace));
    device = made.get();
    return std::make_unique<Replayed>(std::move(made), [](const std::string&) {});
  };
  BenchRun run(recipe, machine, plan_run(recipe, *machine.workspace_model), single_mesh());
  ASSERT_NE(device, nullptr);
  const auto waits_of_step = [&](Backend& on) {
    const int64_t before = device->num_waits();
    run.step(on);
    return device->num_waits() - before;
  };
  for (int i = 0; i < 3; ++i) run.step(run.rank.backend);  // ops that come again and again are replayed from then on
  const int64_t waits = waits_of_step(run.rank.backend);
  Traced traced(run.rank.backend, clock_ns);
  traced.wait_clear();
  const int64_t began = clock_ns();
  EXPECT_EQ(waits_of_step(traced), waits);
  const int64_t ended = clock_ns();
  const auto events = traced.events();
  EXPECT_GT(events.size(), 100u);
  EXPECT_EQ(traced.num_dropped(), 0);
  EXPECT_EQ(device->num_untaken(), 0u);
  int64_t last = began;
  for (const TraceEvent& e : events) {
    ASSERT_LE(last, e.start_ns) << e.op;
    ASSERT_LE(e.start_ns, e.end_ns) << e.op;
    last = e.end_ns;
  }
  EXPECT_LE(last, ended);
}

}  // namespace
}  // namespace weft
