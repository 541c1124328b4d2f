// Reference kernels: activations, dropout, cross-entropy, sums and copies.
#pragma once
#include <algorithm>
#include <cmath>
#include <numbers>

#include "weft/ops/ref/dropout.h"
#include "weft/ops/ref/view.h"

namespace weft::ref {

template <class T>
T sigmoid(T x) {
  return 1.0 / (1.0 + std::exp(-x));
}

// erf near the real axis, to first order: exact for a complex step.
inline double erf_of(double x) { return std::erf(x); }
inline std::complex<double> erf_of(std::complex<double> x) {
  const double slope = 2 / std::sqrt(std::numbers::pi) * std::exp(-x.real() * x.real());
  return {std::erf(x.real()), slope * x.imag()};
}

constexpr double kTanhCubic = 0.044715;  // Hendrycks & Gimpel 2016
inline const double kTanhScale = std::sqrt(2 / std::numbers::pi);

template <class T>
T gelu(T x, bool exact) {
  if (exact) return 0.5 * x * (1.0 + erf_of(x / std::numbers::sqrt2));
  return 0.5 * x * (1.0 + std::tanh(kTanhScale * (x + kTanhCubic * x * x * x)));
}
template <class T>
T gelu_slope(T x, bool exact) {
  if (exact) {
    const T density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    return 0.5 * (1.0 + erf_of(x / std::numbers::sqrt2)) + x * density;
  }
  const T t = std::tanh(kTanhScale * (x + kTanhCubic * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * kTanhScale * (1.0 + 3 * kTanhCubic * x * x);
}

template <class T>
void run(const Gelu& op, int) {
  const auto x = rows<T>(op.x);
  each<T>(op.y, [&](int64_t i, int64_t j) { return gelu(x[i][j], op.exact); });
}

template <class T>
void run(const GeluBackward& op, int) {
  const auto x = rows<T>(op.x), dy = rows<T>(op.dy);
  each<T>(op.dx, [&](int64_t i, int64_t j) { return dy[i][j] * gelu_slope(x[i][j], op.exact); });
}

// The function of a gate, and its slope.
template <class T>
T gate_of(T x, GateKind kind) {
  return kind == GateKind::silu ? x * sigmoid(x) : gelu(x, false);
}
template <class T>
T gate_slope(T x, GateKind kind) {
  const T s = sigmoid(x);
  return kind == GateKind::silu ? s * (1.0 + x * (1.0 - s)) : gelu_slope(x, false);
}

// A clamped unit: its two factors, and their slopes by gate and up.
template <class T>
struct Clamped {
  T f, up, f_slope, up_slope;
  Clamped(T gate, T raw_up, double limit) : up(raw_up + 1.0), up_slope(1) {
    f_slope = T(1);
    if (real_part(gate) > limit) gate = T(limit), f_slope = T(0);
    if (std::abs(real_part(raw_up)) > limit) up = T(real_part(raw_up) > 0 ? 1 + limit : 1 - limit), up_slope = T(0);
    const T s = sigmoid(kClampedSlope * gate);
    f = gate * s;
    f_slope *= s * (1.0 + kClampedSlope * gate * (1.0 - s));
  }
};

template <class T>
void run(const GatedUnit& op, int) {
  const auto u = rows<T>(op.u);
  const int64_t f = op.a.cols();
  if (op.kind == GateKind::clamped)
    return each<T>(op.a, [&](int64_t i, int64_t j) {
      const Clamped<T> c(u[i][2 * j], u[i][2 * j + 1], op.limit);
      return c.f * c.up;
    });
  each<T>(op.a, [&](int64_t i, int64_t j) { return gate_of(u[i][j], op.kind) * u[i][f + j]; });
}

template <class T>
void run(const GatedUnitBackward& op, int) {
  const auto u = rows<T>(op.u), da = rows<T>(op.da), du = rows<T>(op.du);
  const int64_t f = da.cols;
  for (int64_t i = 0; i < da.rows; ++i) {
    for (int64_t j = 0; j < f && op.kind == GateKind::clamped; ++j) {
      const Clamped<T> c(u[i][2 * j], u[i][2 * j + 1], op.limit);
      du[i][2 * j] = da[i][j] * c.up * c.f_slope;
      du[i][2 * j + 1] = da[i][j] * c.f * c.up_slope;
    }
    for (int64_t j = 0; j < f && op.kind != GateKind::clamped; ++j) {
      const T gate = u[i][j], up = u[i][f + j];
      du[i][j] = da[i][j] * up * gate_slope(gate, op.kind);
      du[i][f + j] = da[i][j] * gate_of(gate, op.kind);
    }
  }
}

template <class T>
void run(const SoftCap& op, int) {
  const auto x = rows<T>(op.x);
  each<T>(op.y, [&](int64_t i, int64_t j) { return op.cap * std::tanh(x[i][j] / op.cap); });
}

template <class T>
void run(const SoftCapBackward& op, int) {
  const auto y = rows<T>(op.y), dy = rows<T>(op.dy);
  each<T>(op.dx, [&](int64_t i, int64_t j) { return dy[i][j] * (1.0 - y[i][j] / op.cap * (y[i][j] / op.cap)); });
}

template <class T>
void run(const Dropout& op, int) {
  const auto x = rows<T>(op.x);
  const int64_t* token = op.tokens.as<int64_t>();
  each<T>(op.y, [&](int64_t i, int64_t j) {
    return x[i][j] * kept(op.dropout.p, op.dropout.key, uint64_t(token[i] * op.total + op.first + j));
  });
}

template <class T>
T log_sum_exp(const T* x, int64_t n) {
  double most = -INFINITY;
  for (int64_t j = 0; j < n; ++j) most = std::max(most, real_part(x[j]));
  T sum(0);
  for (int64_t j = 0; j < n; ++j) sum += std::exp(x[j] - most);
  return most + std::log(sum);
}

template <class T>
void run(const CrossEntropy& op, int) {
  const auto logits = rows<T>(op.logits), dlogits = rows<T>(op.dlogits);
  for (int64_t i = 0; i < logits.rows; ++i) {
    const double weight = real_part(flat<T>(op.weights)[i]);
    const int64_t target = op.targets.as<int32_t>()[i];
    const T lse = log_sum_exp(logits[i], logits.cols);
    flat<T>(op.nll)[i] = weight != 0 ? weight * (lse - logits[i][target]) : T(0);
    for (int64_t j = 0; j < logits.cols && dlogits; ++j) {
      const T p = std::exp(logits[i][j] - lse);
      dlogits[i][j] = weight != 0 ? op.scale * weight * (p - (j == target ? 1.0 : 0.0)) : T(0);
    }
  }
}

template <class T>
void run(const CrossEntropyPart& op, int) {
  const auto logits = rows<T>(op.logits), parts = rows<T>(op.parts);
  for (int64_t i = 0; i < logits.rows; ++i) {
    const int64_t at = op.targets.as<int32_t>()[i] - op.first;
    double most = -INFINITY;
    for (int64_t j = 0; j < logits.cols; ++j) most = std::max(most, real_part(logits[i][j]));
    T sum(0);
    for (int64_t j = 0; j < logits.cols && most > -INFINITY; ++j) sum += std::exp(logits[i][j] - most);
    parts[i][0] = T(most);
    parts[i][1] = sum;
    parts[i][2] = at >= 0 && at < logits.cols ? logits[i][at] : T(0);
  }
}

template <class T>
void run(const CrossEntropyJoin& op, int) {
  const auto logits = rows<T>(op.logits), dlogits = rows<T>(op.dlogits), parts = rows<T>(op.parts);
  for (int64_t i = 0; i < logits.rows; ++i) {
    const double weight = real_part(flat<T>(op.weights)[i]);
    const int64_t target = op.targets.as<int32_t>()[i] - op.first;
    double most = -INFINITY;
    for (int64_t r = i; r < parts.rows; r += logits.rows) most = std::max(most, real_part(parts[r][0]));
    T sum(0), at_target(0);
    for (int64_t r = i; r < parts.rows; r += logits.rows) {
      sum += parts[r][1] * std::exp(real_part(parts[r][0]) - most);
      at_target += parts[r][2];
    }
    const T lse = most + std::log(sum);
    flat<T>(op.nll)[i] = weight != 0 ? weight * (lse - at_target) : T(0);
    for (int64_t j = 0; j < logits.cols && dlogits; ++j) {
      const T p = std::exp(logits[i][j] - lse);
      dlogits[i][j] = weight != 0 ? op.scale * weight * (p - (j == target ? 1.0 : 0.0)) : T(0);
    }
  }
}

// What the ranks' parts of a token come to. `d`, joined over maxima that are others', is the sum of w d.
template <class T>
struct JoinedDistillation {
  double most = -INFINITY, teacher_most = -INFINITY;
  T sum = T(0), at_target = T(0), soft = T(0), teacher = T(0), d = T(0);
  T divergence(bool reverse) const {
    return reverse ? d / soft - std::log(soft) + std::log(teacher) : d / teacher - std::log(teacher) + std::log(soft);
  }
};
template <class T, class Parts>
JoinedDistillation<T> join(const Parts& parts, int64_t token, int64_t tokens, const Distillation& loss) {
  JoinedDistillation<T> all;
  for (int64_t r = token; r < parts.rows; r += tokens) {
    all.most = std::max(all.most, real_part(parts[r][0]));
    all.teacher_most = std::max(all.teacher_most, real_part(parts[r][4]));
  }
  for (int64_t r = token; r < parts.rows; r += tokens) {
    const double by = real_part(parts[r][0]) - all.most, teacher_by = real_part(parts[r][4]) - all.teacher_most;
    const double soft = std::exp(by / loss.temperature), teacher = std::exp(teacher_by / loss.temperature);
    all.sum += parts[r][1] * std::exp(by);
    all.at_target += parts[r][2];
    all.soft += parts[r][3] * soft;
    all.teacher += parts[r][5] * teacher;
    const double apart = (loss.reverse ? by - teacher_by : teacher_by - by) / loss.temperature;
    all.d += (loss.reverse ? soft : teacher) * (parts[r][6] + (loss.reverse ? parts[r][3] : parts[r][5]) * apart);
  }
  return all;
}

template <class T>
void run(const DistillPart& op, int) {
  const auto logits = rows<T>(op.logits), teacher = rows<T>(op.teacher), parts = rows<T>(op.parts);
  const double temperature = op.loss.temperature;
  for (int64_t i = 0; i < logits.rows; ++i) {
    const int64_t at = op.targets.as<int32_t>()[i] - op.first;
    double m = -INFINITY, n = -INFINITY;
    for (int64_t j = 0; j < logits.cols; ++j) {
      m = std::max(m, real_part(logits[i][j]));
      n = std::max(n, real_part(teacher[i][j]));
    }
    T sum(0), soft(0), of_teacher(0), d(0);
    for (int64_t j = 0; j < logits.cols; ++j) {
      const T x = (logits[i][j] - m) / temperature, y = (teacher[i][j] - n) / temperature;
      sum += std::exp(logits[i][j] - m);
      soft += std::exp(x);
      of_teacher += std::exp(y);
      d += op.loss.reverse ? std::exp(x) * (x - y) : std::exp(y) * (y - x);
    }
    const T all[] = {T(m), sum, at >= 0 && at < logits.cols ? logits[i][at] : T(0), soft, T(n), of_teacher, d};
    std::copy(std::begin(all), std::end(all), parts[i]);
  }
}

template <class T>
void run(const DistillJoin& op, int) {
  const auto logits = rows<T>(op.logits), teacher = rows<T>(op.teacher), dlogits = rows<T>(op.dlogits),
             parts = rows<T>(op.parts);
  const double temperature = op.loss.temperature, alpha = op.loss.alpha;
  for (int64_t i = 0; i < logits.rows; ++i) {
    const double weight = real_part(flat<T>(op.weights)[i]);
    const int64_t target = op.targets.as<int32_t>()[i] - op.first;
    const auto all = join<T>(parts, i, logits.rows, op.loss);
    const T kl = all.divergence(op.loss.reverse);
    flat<T>(op.nll)[i] = weight != 0 ? weight * (all.most + std::log(all.sum) - all.at_target) : T(0);
    flat<T>(op.divergence)[i] = weight != 0 ? weight * kl : T(0);
    for (int64_t j = 0; j < logits.cols; ++j) {
      const T p = std::exp(logits[i][j] - all.most) / all.sum;
      const T log_q = (logits[i][j] - all.most) / temperature - std::log(all.soft);
      const T log_t = (teacher[i][j] - all.teacher_most) / temperature - std::log(all.teacher);
      const T pull = op.loss.reverse ? std::exp(log_q) * (log_q - log_t - kl) : std::exp(log_q) - std::exp(log_t);
      const T slope = alpha * temperature * pull + (1 - alpha) * (p - (j == target ? 1.0 : 0.0));
      dlogits[i][j] = weight != 0 ? op.scale * weight * slope : T(0);
    }
  }
}

template <class T>
void run(const Add& op, int) {
  const auto x = rows<T>(op.x), y = rows<T>(op.y);
  each<T>(op.out, [&](int64_t i, int64_t j) { return x[i][j] + y[i][j]; });
}

template <class T>
void run(const Axpby& op, int) {
  const auto x = rows<T>(op.x), y = rows<T>(op.y);
  each<T>(op.out, [&](int64_t i, int64_t j) { return y ? op.a * x[i][j] + op.b * y[i][j] : op.a * x[i][j]; });
}

template <class T>
void run(const AddRow& op, int) {
  const auto y = rows<T>(op.y);
  each<T>(op.y, [&](int64_t i, int64_t j) { return y[i][j] + flat<T>(op.b)[j]; });
}

template <class T>
void run(const ScaleColumns& op, int) {
  using std::sqrt;
  const auto x = rows<T>(op.x);
  const T *w = flat<T>(op.w), *squares = flat<T>(op.squares);
  each<T>(op.y, [&](int64_t i, int64_t j) {
    const T y = w ? x[i][j] * w[j] : x[i][j];
    return squares ? y / sqrt(squares[j]) : y;
  });
}

template <class T>
void run(const Copy& op, int) {
  const auto from = rows<T>(op.from);
  each<T>(op.to, [&](int64_t i, int64_t j) { return from[i][j]; });
}

template <class T>
void run(const Zero& op, int) {
  each<T>(op.x, [](int64_t, int64_t) { return T(0); });
}

template <class T>
void run(const Ones& op, int) {
  each<T>(op.x, [](int64_t, int64_t) { return T(1); });
}

}  // namespace weft::ref
