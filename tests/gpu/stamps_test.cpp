// A GPU's time stamps compared with the host's clock.
#include "gpu/gpu.h"
#include "weft/ops/traced.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

constexpr int64_t kSide = 1024;
constexpr int64_t kAllowedNs = 200'000;  // between two clocks

int64_t clock_ns() { return int64_t(now_s() * 1e9); }

class StampsOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    WEFT_NEEDS_GPU();
    machine_ = testing::gpu_machine();
    arena_.emplace("operands", 3 * kSide * kSide * 4, machine_.memory);
    op_ = {.a = matrix(), .b = matrix(), .out = matrix()};
    workspace_.emplace("workspace", machine_.workspace_model->of(op_), machine_.memory);
    backend_ = machine_.make_backend(*workspace_);
    backend_->run(Zero{op_.a});
    backend_->run(Zero{op_.b});
  }
  Tensor matrix() { return arena_->alloc(DType::f32, {kSide, kSide}); }

  Machine machine_;
  std::optional<Arena> arena_, workspace_;
  std::unique_ptr<Backend> backend_;
  Matmul op_;
};

TEST_F(StampsOnGpu, GrowAndLieBetweenTheHostsTimes) {
  backend_->run(op_);  // cuBLASLt is asked, and its kernel loaded
  const Stamp first = backend_->issued()->stamp();
  if (testing::gpu_backend() == "cpu") {  // cores run ops at once
    EXPECT_EQ(first, Stamp::none);
    return;
  }
  ASSERT_NE(first, Stamp::none);
  backend_->wait_all();
  int64_t last = backend_->issued()->take_time_ns(first);
  for (int round = 0; round < 3; ++round) {
    const int64_t began = clock_ns();
    std::vector<Stamp> stamps{backend_->issued()->stamp()};
    for (int i = 0; i < 50; ++i) {
      backend_->run(op_);
      stamps.push_back(backend_->issued()->stamp());
    }
    backend_->wait_all();
    const int64_t ended = clock_ns();
    for (const Stamp s : stamps) {
      const int64_t ns = backend_->issued()->take_time_ns(s);
      EXPECT_GE(ns, last);
      EXPECT_GE(ns, began - kAllowedNs);
      EXPECT_LE(ns, ended + kAllowedNs);
      last = ns;
    }
  }
}

TEST_F(StampsOnGpu, OpsOfATraceTakeNoLongerThanAllOfThem) {
  Traced traced(*backend_, clock_ns);
  traced.run(op_);
  traced.wait_clear();
  const int64_t began = clock_ns();
  for (int i = 0; i < 100; ++i) traced.run(op_);
  traced.wait_all();
  const int64_t took = clock_ns() - began;
  const auto events = traced.events();
  ASSERT_EQ(events.size(), 100u);
  int64_t sum = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_GT(events[i].end_ns, events[i].start_ns) << i;
    EXPECT_GE(events[i].start_ns, i > 0 ? events[i - 1].end_ns : began - kAllowedNs) << i;
    sum += events[i].end_ns - events[i].start_ns;
  }
  EXPECT_LE(sum, took + kAllowedNs);
  EXPECT_GE(sum, took / 4) << "2 GFLOP each: not only gaps";
}

}  // namespace
}  // namespace weft
