// Attention by a library: which it may have, in which batches, and what is found out where the library is wrong. The
// library of these tests runs the graph that cuDNN is asked for, operation by operation.
#include "weft/ops/cuda/fast_attention.h"

#include <gtest/gtest.h>

#include "ops/cases_attention.h"
#include "ops/graph_interpreter.h"
#include "ops/host_kernels.h"

namespace weft {
namespace {

using testing::AttentionCase;
using testing::heads_of;
using testing::Operands;
using testing::packed;

// What the library of a test does, and what was asked of it.
struct Manner {
  bool has_no_way = false, peer_fails = false;
  double lse_off_by = 0;       // forward: wrong in the result that nothing else shows
  double scale_off_by = 0;     // of what is computed
  double other_each_time = 0;  // added to the scale, once more for each run
  int plans = 0, runs = 0;
  int64_t most_workspace = 0;
  std::vector<std::string> told = {};
};

class GraphLibrary final : public AttentionLibrary {
 public:
  explicit GraphLibrary(Manner& manner) : manner_(manner) {}
  void plan(const gpu::AttentionShape&, int64_t most_workspace) override {
    if (manner_.has_no_way) throw Error("it has no way");
    ++manner_.plans, manner_.most_workspace = most_workspace;
  }
  void run(const gpu::AttentionShape& shape, const AttentionData& data, void* workspace) override {
    ++manner_.runs;
    if (manner_.peer_fails) throw CommError("rank 1 has failed");
    std::memset(workspace, 0x7f, size_t(manner_.most_workspace));
    AttentionData mine = data;
    float scale = *static_cast<float*>(data.at(gpu::Argument::scale));
    scale *= float(1 + manner_.scale_off_by + manner_.other_each_time * manner_.runs);
    mine[gpu::Argument::scale] = &scale;
    const gpu::AttentionGraph graph = gpu::attention_graph(shape);
    testing::GraphInterpreter(graph, mine).run();
    auto* const lse = static_cast<float*>(data.at(gpu::Argument::lse));
    if (manner_.lse_off_by != 0) lse[shape.length + 5] += float(manner_.lse_off_by);
  }

 private:
  Manner& manner_;
};

// The GPU's kernels, and attention as a GPU's backend computes it.
class HostBackend final : public Backend {
 public:
  HostBackend(Manner& manner, const gpu::AttentionLimits& limits)
      : limits_(limits),
        attention_(
            std::make_unique<GraphLibrary>(manner), [&manner](const std::string& what) { manner.told.push_back(what); },
            limits) {}
  void run(const AnyOp& op) override {
    op.visit([&](const auto& o) { apply(o); });
  }

 private:
  template <class Op>
  void apply(const Op& op) {
    if constexpr (std::is_same_v<Op, Attention> || std::is_same_v<Op, AttentionBackward>) {
      if (by_library(op)) return;
    }
    own_.apply(op);
  }
  template <class Op>
  bool by_library(const Op& op) {
    const auto shape = gpu::shape_of(op, limits_);
    const auto batches = shape ? gpu::batches_of(*shape, limits_) : std::nullopt;
    std::vector<std::byte> memory;
    if (batches) memory.assign(size_t(gpu::region_of(*batches, *shape).bytes + gpu::kRegionAlignment), std::byte{0xff});
    return attention_.run(launcher_, op, memory.data(), [&](const Op& same) { own_.apply(same); });
  }

  gpu::AttentionLimits limits_;
  testing::HostLauncher launcher_;
  testing::HostKernels own_;
  gpu::FastAttention<testing::HostLauncher> attention_;
};

struct Setting {
  int64_t sequences = 2;
  AttentionHeads heads = heads_of(2, 2, 16);
  DType dtype = DType::bf16;
  gpu::AttentionLimits limits = {};
};
template <class Op, class Make>
std::unique_ptr<testing::TrialOf<Op>> trial_of(const Setting& s, const Make& make) {
  auto operands = std::make_unique<Operands>(s.dtype, 8);
  const std::vector<int64_t> lengths(size_t(s.sequences), 128);
  const Op op = make(*operands, AttentionCase{"", packed(lengths), s.heads});
  return std::make_unique<testing::TrialOf<Op>>(std::move(operands), op);
}
std::unique_ptr<testing::TrialOf<Attention>> forward(const Setting& s) {
  return trial_of<Attention>(s, testing::make_attention);
}
std::unique_ptr<testing::TrialOf<AttentionBackward>> backward(const Setting& s) {
  return trial_of<AttentionBackward>(s, testing::make_attention_backward);
}
template <class Trial>
void expect_right(Trial& trial, Backend& backend) {
  RefBackend ref(1);
  trial.run(backend);
  trial.run_exact(ref);
  EXPECT_EQ(trial.difference(), "");
  EXPECT_EQ(trial.trespass(), "");
}

TEST(FastAttentionSlow, TheGraphIsAttention) {
  for (const DType t : {DType::bf16, DType::f16}) {
    for (const AttentionHeads& heads :
         {heads_of(2, 2, 16), heads_of(4, 2, 8), heads_of(3, 1, 24), heads_of(2, 1, 8, 77)}) {
      const Setting setting{.heads = heads, .dtype = t};
      Manner manner;
      HostBackend host(manner, {});
      expect_right(*forward(setting), host);
      expect_right(*backward(setting), host);
      EXPECT_EQ(manner.told, std::vector<std::string>());
      EXPECT_EQ(manner.runs, 4);  // each of both twice, to see that its bits repeat
    }
  }
}

// Sums that blocks add to as they come begin at 0, and other bits each time are no fault.
TEST(FastAttentionSlow, WhatNeedNotRepeatIsOneBatch) {
  for (const AttentionHeads& heads : {heads_of(4, 2, 8), heads_of(2, 2, 16, 90)}) {
    Manner manner{.other_each_time = 1e-5};
    HostBackend host(manner, {.batch = 1, .repeats = false});
    const auto trial = backward({.sequences = 3, .heads = heads});
    for (const int runs : {2, 3}) {
      expect_right(*trial, host);
      trial->reset();
      EXPECT_EQ(manner.runs, runs);
    }
    EXPECT_EQ(manner.told, std::vector<std::string>());
  }
}

TEST(FastAttention, OnlyTheFirstOfAShapeIsChecked) {
  const auto one = forward({}), other = forward({.sequences = 3});
  Manner manner;
  HostBackend host(manner, {});
  one->run(host);
  const std::vector<std::byte> bits = one->outputs();
  EXPECT_EQ(manner.runs, 2);
  one->reset();
  one->run(host);
  EXPECT_EQ(manner.runs, 3);
  EXPECT_EQ(one->outputs(), bits);
  other->run(host);
  EXPECT_EQ(manner.runs, 5);
}

TEST(FastAttentionSlow, BackwardGoesInBatchesThatFit) {
  const int64_t of_head = 2 * 128 * 128;  // and more
  for (const auto& [heads, limit, batches] :
       {std::tuple{heads_of(4, 2, 8), int64_t{1} << 40, 1}, std::tuple{heads_of(2, 2, 16), 5 * of_head, 3},
        std::tuple{heads_of(4, 2, 8), 3 * of_head, 6}, std::tuple{heads_of(4, 4, 8), int64_t{1}, 12}}) {
    const Setting setting{.sequences = 3, .heads = heads};
    Manner manner;
    HostBackend host(manner, {.batch = limit});
    const auto trial = backward(setting);
    expect_right(*trial, host);
    EXPECT_EQ(manner.told, std::vector<std::string>());
    EXPECT_EQ(manner.runs, 2 * batches);
    EXPECT_EQ(manner.plans, 1);
  }
}

TEST(FastAttention, ALibraryThatIsWrongIsFoundOutAndToldOnce) {
  for (const Manner& wrong : {Manner{.lse_off_by = 0.1}, Manner{.scale_off_by = 0.2}, Manner{.other_each_time = 1e-3},
                              Manner{.has_no_way = true}}) {
    for (const bool backwards : {false, true}) {
      if (backwards && wrong.lse_off_by != 0) continue;  // which is read there
      Manner manner = wrong;
      HostBackend host(manner, {});
      const auto run = [&](auto trial) {
        expect_right(*trial, host);
        const int runs = manner.runs;
        trial->reset();
        expect_right(*trial, host);
        EXPECT_EQ(manner.runs, runs);
      };
      backwards ? run(backward({})) : run(forward({}));
      ASSERT_EQ(manner.told.size(), 1u);
      EXPECT_NE(manner.told[0].find("2 x 128 tokens, 2 heads (2 of keys) of 16, bf16"), std::string::npos);
    }
  }
}

TEST(FastAttentionSlow, NothingIsProvenByZerosOrInfinities) {
  for (const double x : {0.0, double(INFINITY)}) {
    const auto trial = backward({});
    const Tensor& dout = trial->op().dout;
    Manner manner;
    HostBackend host(manner, {});
    std::vector<double> kept;
    for (int64_t i = 0; i < dout.rows(); ++i)
      for (int64_t j = 0; j < dout.cols(); ++j) {
        kept.push_back(testing::load(dout.data, dout.dtype, i * dout.row_stride + j));
        testing::store(dout.data, dout.dtype, i * dout.row_stride + j, x);
      }
    trial->run(host);
    EXPECT_EQ(manner.runs, 2);
    trial->run(host);
    EXPECT_EQ(manner.runs, 4);  // still unknown
    for (int64_t i = 0; i < dout.rows(); ++i)
      for (int64_t j = 0; j < dout.cols(); ++j)
        testing::store(dout.data, dout.dtype, i * dout.row_stride + j, kept[size_t(i * dout.cols() + j)]);
    expect_right(*trial, host);
    EXPECT_EQ(manner.runs, 6);
    trial->run(host);
    EXPECT_EQ(manner.runs, 7);
    EXPECT_EQ(manner.told, std::vector<std::string>());
  }
}

// Who waits for the device to compare results may learn that another rank has failed: that says nothing of the library.
TEST(FastAttention, AFailureOfAnotherRankIsNoneOfTheLibrarys) {
  const auto trial = forward({});
  Manner manner{.peer_fails = true};
  HostBackend host(manner, {});
  EXPECT_THROW(trial->run(host), CommError);
  EXPECT_EQ(manner.told, std::vector<std::string>());
  manner.peer_fails = false;
  expect_right(*trial, host);
  EXPECT_EQ(manner.runs, 3);
}

// An op whose tensors have no memory.
Attention planned(const std::vector<AttentionSpan>& spans, const AttentionHeads& heads, DType t = DType::bf16) {
  int64_t rows = 0;
  for (const AttentionSpan& s : spans) rows = std::max(rows, s.q_row + s.q_count);
  const Tensor q(nullptr, t, {rows, heads.q * heads.dim}), k(nullptr, t, {rows, heads.kv * heads.dim});
  return {.q = q,
          .k = k,
          .v = k,
          .o = q,
          .lse = Tensor(nullptr, DType::f32, {rows, heads.q}),
          .spans = spans,
          .heads = heads};
}

TEST(AttentionBatch, EqualSequencesAreOneAndNothingElseIs) {
  const AttentionHeads heads = heads_of(4, 2, 64);
  const auto spans = packed({256, 256, 256});
  const auto shape = gpu::shape_of(planned(spans, heads));
  ASSERT_TRUE(shape);
  EXPECT_EQ(shape->sequences, 3);
  EXPECT_EQ(shape->length, 256);
  EXPECT_EQ(shape->q_stride, 256);
  EXPECT_EQ(shape->k_stride, 128);
  auto with = [&](const auto& change) {
    auto other = spans;
    change(other);
    return other;
  };
  EXPECT_TRUE(gpu::shape_of(planned(spans, heads_of(4, 2, 64, 256))));  // a window that hides nothing
  EXPECT_TRUE(gpu::shape_of(planned(with([](auto& s) { s[1].q_position = s[1].k_position = 7; }), heads)));
  EXPECT_FALSE(gpu::shape_of(planned(packed({256, 128}), heads)));
  EXPECT_FALSE(gpu::shape_of(planned(packed({200, 200}), heads)));
  EXPECT_FALSE(gpu::shape_of(planned(with([](auto& s) { s[2].q_position = 1; }), heads)));
  EXPECT_FALSE(gpu::shape_of(planned(with([](auto& s) { s[2].k_row = 0; }), heads)));
  EXPECT_FALSE(gpu::shape_of(planned(with([](auto& s) { std::swap(s[0], s[1]); }), heads)));
  EXPECT_EQ(gpu::shape_of(planned(spans, heads_of(4, 2, 64, 255)))->window, 255);
  EXPECT_FALSE(gpu::shape_of(planned(spans, heads_of(4, 2, 64, 127))));  // half of the scores are not needed
  EXPECT_FALSE(gpu::shape_of(planned(spans, heads_of(4, 2, 136))));
  EXPECT_FALSE(gpu::shape_of(planned(spans, heads_of(4, 2, 20))));
  EXPECT_FALSE(gpu::shape_of(planned(spans, heads_of(heads, 32))));
  EXPECT_FALSE(gpu::shape_of(planned(spans, heads, DType::f32)));
  Attention op = planned(spans, heads);
  op.dropout.p = 0.1;
  EXPECT_FALSE(gpu::shape_of(op));
  op = planned(spans, heads);
  op.q.row_stride += 4;
  EXPECT_FALSE(gpu::shape_of(op));
  EXPECT_EQ(gpu::library_bytes(op), 0);
}

TEST(AttentionBatch, BatchesOfTheSizesThatAreTrained) {
  const auto batches = [](int64_t sequences, int64_t length, const AttentionHeads& h) {
    return gpu::batches_of(
        {.backward = true, .sequences = sequences, .length = length, .heads = h.q, .kv_heads = h.kv, .dim = h.dim});
  };
  const auto llama_1b = batches(8, 2048, heads_of(32, 8, 64)), llama_8b = batches(2, 8192, heads_of(32, 8, 128)),
             gpt2 = batches(64, 1024, heads_of(12, 12, 64));
  ASSERT_TRUE(llama_1b && llama_8b && gpt2);
  EXPECT_EQ(llama_1b->batch.sequences, 1);
  EXPECT_EQ(llama_1b->batch.heads, 16);
  EXPECT_EQ(llama_1b->batch.kv_heads, 4);
  EXPECT_EQ(llama_1b->count, 16);
  EXPECT_EQ(llama_8b->batch.heads, 4);
  EXPECT_EQ(llama_8b->batch.kv_heads, 1);
  EXPECT_EQ(llama_8b->count, 16);
  EXPECT_EQ(gpt2->batch.sequences, 8);
  EXPECT_EQ(gpt2->batch.heads, 12);
  EXPECT_EQ(gpt2->count, 8);
  for (const auto& p : {llama_1b, gpt2}) EXPECT_LE(p->workspace_bytes, (256 << 20) + (1 << 20));
  EXPECT_LE(llama_8b->workspace_bytes, int64_t{1} << 30);
  EXPECT_FALSE(batches(1, 32768, heads_of(8, 8, 64)));
}

}  // namespace
}  // namespace weft
