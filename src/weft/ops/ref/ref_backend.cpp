#include "weft/ops/ref/ref_backend.h"

#include <algorithm>
#include <cstring>

#include "weft/base/parallel.h"
#include "weft/ops/ref/attention.h"
#include "weft/ops/ref/matrix.h"
#include "weft/ops/ref/norm.h"
#include "weft/ops/ref/pointwise.h"

namespace weft {
namespace {

using ref::Rows;

Rows<double> out(const Tensor& t) { return {t ? t.as<double>() : nullptr, t.rows(), t.cols(), t.row_stride}; }
Rows<const double> in(const Tensor& t) { return {t ? t.as<double>() : nullptr, t.rows(), t.cols(), t.row_stride}; }
double* flat(const Tensor& t) { return t ? t.as<double>() : nullptr; }

// y[i][j] = f(i, j) for every element.
template <class F>
void each(const Tensor& y, F f) {
  const auto rows = out(y);
  for (int64_t i = 0; i < rows.rows; ++i)
    for (int64_t j = 0; j < rows.cols; ++j) rows[i][j] = f(i, j);
}

constexpr int64_t kFewFlops = 1 << 16;  // not worth a thread

}  // namespace

void RefBackend::run(const Matmul& op) {
  const ref::MatmulArgs<double> m{in(op.a),   in(op.b),      out(op.out),  op.trans_a,
                                  op.trans_b, op.accumulate, flat(op.bias)};
  const int threads = op.m() * op.n() * op.k() < kFewFlops ? 1 : threads_;
  parallel_for(op.m(), threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ref::matmul_row(m, i);
  });
}

void RefBackend::run(const BiasGrad& op) { ref::bias_grad(in(op.dy), flat(op.db), op.accumulate); }

void RefBackend::run(const Embed& op) {
  ref::embed(op.ids.as<int32_t>(), in(op.table), out(op.out), op.first, op.accumulate);
}

void RefBackend::run(const EmbedBackward& op) {
  ref::embed_backward(op.ids.as<int32_t>(), in(op.dy), out(op.dtable), op.first);
}

void RefBackend::run(const Norm& op) {
  ref::norm<double>(
      {in(op.x), in(op.delta), out(op.sum), flat(op.w), flat(op.b), out(op.y), flat(op.mean), flat(op.rstd), op.eps});
}

void RefBackend::run(const NormApply& op) {
  ref::norm_apply<double>({in(op.x), flat(op.w), flat(op.b), flat(op.mean), flat(op.rstd), out(op.y)});
}

void RefBackend::run(const NormBackward& op) {
  ref::norm_backward<double>({in(op.x), flat(op.w), flat(op.mean), flat(op.rstd), in(op.dy), in(op.carry), out(op.dx),
                              flat(op.dw), flat(op.db), op.accumulate});
}

void RefBackend::run(const HeadNorm& op) {
  ref::head_norm<double>({in(op.x), flat(op.w), op.w.rows(), out(op.y), out(op.rstd), op.eps});
}

void RefBackend::run(const HeadNormBackward& op) {
  ref::head_norm_backward<double>(
      {in(op.x), flat(op.w), op.w.rows(), in(op.rstd), in(op.dy), out(op.dx), flat(op.dw), op.accumulate});
}

void RefBackend::run(const Rope& op) {
  ref::rope(out(op.x), op.positions.as<int32_t>(), in(op.table), op.inverse ? -1 : 1);
}

void RefBackend::run(const Attention& op) {
  const ref::AttentionArgs<double> a{in(op.q),    in(op.k), in(op.v), out(op.o),
                                     out(op.lse), op.spans, op.heads, op.dropout};
  for (const AttentionSpan& s : op.spans) {
    parallel_for(op.heads.q, threads_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t head = begin; head < end; ++head)
        for (int64_t i = 0; i < s.q_count; ++i) ref::attend(a, s, i, head);
    });
  }
}

// Threads take whole key heads: no two add to the same row of dk.
void RefBackend::run(const AttentionBackward& op) {
  const ref::AttentionBackwardArgs<double> a{in(op.q),   in(op.k),   in(op.v),   in(op.o), in(op.lse), in(op.dout),
                                             out(op.dq), out(op.dk), out(op.dv), op.spans, op.heads,   op.dropout};
  each(op.dk, [](int64_t, int64_t) { return 0.0; });
  each(op.dv, [](int64_t, int64_t) { return 0.0; });
  const int64_t group = op.heads.q / op.heads.kv;
  parallel_for(op.heads.q, threads_, group, [&](int64_t begin, int64_t end) {
    for (const AttentionSpan& s : op.spans)
      for (int64_t head = begin; head < end; ++head)
        for (int64_t i = 0; i < s.q_count; ++i) ref::attend_backward(a, s, i, head);
  });
}

void RefBackend::run(const Swiglu& op) {
  const auto u = in(op.u);
  const int64_t f = op.a.cols();
  each(op.a, [&](int64_t i, int64_t j) { return ref::swiglu(u[i][j], u[i][f + j]); });
}

void RefBackend::run(const SwigluBackward& op) {
  const auto u = in(op.u), da = in(op.da);
  const auto du = out(op.du);
  for (int64_t i = 0; i < da.rows; ++i) {
    for (int64_t j = 0; j < da.cols; ++j) {
      const auto d = ref::swiglu_backward(u[i][j], u[i][da.cols + j], da[i][j]);
      du[i][j] = d.gate;
      du[i][da.cols + j] = d.up;
    }
  }
}

void RefBackend::run(const Gelu& op) {
  const auto x = in(op.x);
  each(op.y, [&](int64_t i, int64_t j) { return ref::gelu(x[i][j], op.exact); });
}

void RefBackend::run(const GeluBackward& op) {
  const auto x = in(op.x), dy = in(op.dy);
  each(op.dx, [&](int64_t i, int64_t j) { return dy[i][j] * ref::gelu_slope(x[i][j], op.exact); });
}

void RefBackend::run(const Dropout& op) {
  const auto x = in(op.x);
  const int64_t* token = op.tokens.as<int64_t>();
  each(op.y, [&](int64_t i, int64_t j) {
    return x[i][j] * ref::kept(op.dropout, uint64_t(token[i] * op.total + op.first + j));
  });
}

void RefBackend::run(const CrossEntropy& op) {
  const auto logits = in(op.logits);
  const auto dlogits = out(op.dlogits);
  for (int64_t i = 0; i < logits.rows; ++i) {
    const bool counted = op.counted.as<uint8_t>()[i] != 0;
    double* d = dlogits ? dlogits[i] : nullptr;
    flat(op.nll)[i] =
        counted ? ref::cross_entropy(logits[i], logits.cols, op.targets.as<int32_t>()[i], d, op.scale) : 0;
    if (!counted && d) std::fill_n(d, logits.cols, 0.0);
  }
}

void RefBackend::run(const Add& op) {
  const auto x = in(op.x), y = in(op.y);
  each(op.out, [&](int64_t i, int64_t j) { return x[i][j] + y[i][j]; });
}

void RefBackend::run(const AddRow& op) {
  const auto y = in(op.y);
  each(op.y, [&](int64_t i, int64_t j) { return y[i][j] + flat(op.b)[j]; });
}

void RefBackend::run(const Copy& op) {
  const auto from = in(op.from);
  each(op.to, [&](int64_t i, int64_t j) { return from[i][j]; });
}

void RefBackend::run(const Zero& op) {
  each(op.x, [](int64_t, int64_t) { return 0.0; });
}

void RefBackend::run(const Sum& op) {
  double sum = 0;
  for (int64_t i = 0; i < op.x.elements(); ++i) sum += flat(op.x)[i];
  *flat(op.out) = sum;
}

void RefBackend::run(const SumSquares& op) {
  double sum = 0;
  for (int64_t i = 0; i < op.x.elements(); ++i) sum += flat(op.x)[i] * flat(op.x)[i];
  *flat(op.out) = sum;
}

void RefBackend::run(const CountNonfinite& op) {
  const double* x = flat(op.x);
  *flat(op.out) = double(std::count_if(x, x + op.x.elements(), [](double v) { return !std::isfinite(v); }));
}

void RefBackend::run(const AdamW& op) {
  const double c1 = 1 - std::pow(op.beta1, double(op.step)), c2 = 1 - std::pow(op.beta2, double(op.step));
  for (int64_t i = 0; i < op.w.elements(); ++i) {
    double &w = flat(op.w)[i], &m = flat(op.m)[i], &v = flat(op.v)[i];
    const double g = op.grad_scale * flat(op.grad)[i];
    m = op.beta1 * m + (1 - op.beta1) * g;
    v = op.beta2 * v + (1 - op.beta2) * g * g;
    w -= op.lr * op.weight_decay * w;
    w -= op.lr * (m / c1) / (std::sqrt(v / c2) + op.eps);
    if (op.value) flat(op.value)[i] = w;
  }
}

void RefBackend::run(const Sgd& op) {
  for (int64_t i = 0; i < op.w.elements(); ++i) {
    double &w = flat(op.w)[i], &buf = flat(op.buf)[i];
    const double g = op.grad_scale * flat(op.grad)[i] + op.weight_decay * w;
    buf = op.step == 1 ? g : op.momentum * buf + g;
    w -= op.lr * buf;
    if (op.value) flat(op.value)[i] = w;
  }
}

}  // namespace weft
