// Golden cases of AdamW with moments in 8 bits: given gradients, without a model.
#include <cstring>

#include "train/golden_cases.h"
#include "weft/apps/backends.h"
#include "weft/ops/ref/ref_backend.h"
#include "weft/optim/optimizer.h"

namespace weft {
namespace {

using testing::GoldenCase;

std::vector<double> numbers(const SafetensorsFile& file, const std::string& name) {
  const auto bytes = file.bytes(*file.find(name));
  std::vector<double> all;
  for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
    float x = 0;
    std::memcpy(&x, bytes.data() + at, sizeof x);
    all.push_back(double(x));
  }
  return all;
}
double number(const Tensor& t, int64_t i) {
  return t.dtype == DType::f64 ? t.as<double>()[i] : double(t.as<float>()[i]);
}
void put(const Tensor& t, int64_t i, double x) {
  if (t.dtype == DType::f64)
    t.as<double>()[i] = x;
  else
    t.as<float>()[i] = float(x);
}

// The tensors of a case in a store, and what is read of them.
class Vectors {
 public:
  Vectors(const GoldenCase& c, Precision precision, const Optimizer& optimizer)
      : initial_(SafetensorsFile::open(c.folder / "initial.safetensors")),
        grads_(SafetensorsFile::open(c.folder / "grads.safetensors")),
        expected_(SafetensorsFile::open(c.folder / "expected.safetensors")),
        store_(precision, {}) {
    for (const SafetensorsEntry& e : initial_.tensors()) {  // the case decays vectors too: as matrices of one column
      const Shape shape(e.shape[0], e.shape.size() > 1 ? e.shape[1] : 1);
      params_.push_back(&store_.add({.name = e.name, .shape = shape, .place = weights(Spmd::Invariant)}));
    }
    unit_ = store_.close_unit("vectors", 0);
    store_.allocate({memory_, memory_, memory_, memory_}, optimizer.formats());
    for (const Param* p : params_) {
      const std::vector<double> values = numbers(initial_, p->spec().name);
      for (size_t i = 0; i < values.size(); ++i) put(kept(*p).master, int64_t(i), values[i]);
    }
  }
  void step(Backend& backend, const Optimizer& optimizer, int64_t step, double lr) {
    store_.begin_step();
    store_.open_grads(backend, unit_, 0);
    for (Param* p : params_) {
      const std::vector<double> g = numbers(grads_, fmt::format("{}.step{}", p->spec().name, step));
      for (size_t i = 0; i < g.size(); ++i) put(p->grad, int64_t(i), g[i]);
    }
    store_.flush(backend, unit_, 0, true);
    store_.finish_step(backend);
    update_all(backend, optimizer, store_, scratch_, {.lr = lr, .grad_scale = 1, .step = step});
    expect_step(step);
  }
  int64_t codes() const { return codes_; }
  int64_t codes_apart() const { return apart_; }

 private:
  ParamStore::Stored kept(const Param& p) const { return store_.stored(p)[0]; }
  void expect_step(int64_t step) {
    for (const Param* p : params_) {
      const std::vector<double> w = numbers(expected_, fmt::format("{}.step{}", p->spec().name, step));
      for (size_t i = 0; i < w.size(); ++i)
        ASSERT_NEAR(number(kept(*p).master, int64_t(i)), w[i], 1e-6 * (1 + std::abs(w[i])))
            << p->spec().name << " " << i << " step " << step;
      for (size_t k = 0; k < 2; ++k) expect_state(*p, k, step);
    }
  }
  void expect_state(const Param& p, size_t k, int64_t step) {
    const std::string name = fmt::format("{}.{}", p.spec().name, k == 0 ? "m" : "v");
    const SafetensorsEntry* entry = expected_.find(fmt::format("{}_codes.step{}", name, step));
    if (entry == nullptr) return;
    const ParamStore::Stored here = kept(p);
    const auto codes = expected_.bytes(*entry);
    ASSERT_EQ(here.states[k].bytes(), int64_t(codes.size()));
    for (size_t i = 0; i < codes.size(); ++i, ++codes_) {
      const int far = std::abs(int(here.states[k].as<uint8_t>()[i]) - int(codes[i]));
      ASSERT_LE(far, 1) << name << " " << i << " step " << step;
      apart_ += far;
    }
    const std::vector<double> absmax = numbers(expected_, fmt::format("{}_absmax.step{}", name, step));
    ASSERT_EQ(here.blocks[k].absmax.elements(), int64_t(absmax.size()));
    for (size_t b = 0; b < absmax.size(); ++b)
      EXPECT_NEAR(number(here.blocks[k].absmax, int64_t(b)), absmax[b], 2.6e-6 * absmax[b]) << name << " " << b;
  }

  SafetensorsFile initial_, grads_, expected_;
  Arena memory_{"all", 1 << 22}, scratch_{"scratch", 1 << 16};
  ParamStore store_;
  std::vector<Param*> params_;
  int unit_ = 0;
  int64_t codes_ = 0, apart_ = 0;
};

// Parameters to 1e-6 (1 + size); codes equal but for one in 1000, which is one off; absmax to ten times the case's own
// distance from fp64.
TEST(GoldenAdam8, CodesAndWeightsOfEveryCaseAreThoseOfTheOtherImplementation) {
  int run = 0;
  for (const GoldenCase& c : testing::golden_cases()) {
    if (c.train.is_null() || c.train.value("kind", "") != "adam8_vectors") continue;
    SCOPED_TRACE(c.name);
    const auto optimizer = make_adamw8bit({.adamw = {.beta1 = c.train["betas"][0].get<double>(),
                                                     .beta2 = c.train["betas"][1].get<double>(),
                                                     .eps = c.train["eps"].get<double>(),
                                                     .weight_decay = c.train["weight_decay"].get<double>()},
                                           .min_size = 0});
    Recipe recipe;
    recipe.run.threads = 2;
    const Machine cpu = machine_for(recipe);
    Arena workspace("workspace", 1 << 20);
    const std::unique_ptr<Backend> on_cores = cpu.make_backend(workspace);
    RefBackend ref(1);
    for (const bool exact : {true, false}) {
      Vectors vectors(c, exact ? kF64 : kF32, *optimizer);
      Backend& backend = exact ? static_cast<Backend&>(ref) : *on_cores;
      for (int64_t step = 1; step <= c.train["steps"].get<int64_t>(); ++step)
        vectors.step(backend, *optimizer, step, c.train["lr"].get<double>());
      EXPECT_GT(vectors.codes(), 0);
      EXPECT_LE(vectors.codes_apart(), vectors.codes() / 1000) << (exact ? "f64" : "f32");
    }
    ++run;
  }
  if (run == 0) GTEST_SKIP() << "the folders have no such case";
}

}  // namespace
}  // namespace weft
