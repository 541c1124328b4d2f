// Backends around a backend: one that checks what goes in and comes out, one that records when.
#pragma once
#include <string>
#include <vector>

#include "weft/ops/backend.h"
#include "weft/ops/rules.h"

namespace weft {

// Where the first value of a tensor is that is not finite, as "[row, column] is nan"; empty when all are. Host memory.
std::string find_nonfinite(const Tensor& t);

// Judges every op by the rules before it runs and, if asked, every value that it wrote.
class Checked final : public UniformBackend<Checked> {
 public:
  struct Options {
    bool finite = false;  // throw NumericsError "blocks.3.mlp: swiglu.a [4, 17] is nan" at the first bad value
  };
  Checked(Backend& inner, Options options) : inner_(inner), options_(options) {}

  template <class Op>
  void apply(const Op& op) {
    rules::check(op);
    inner_.run(op);
    if (options_.finite) check_finite(Op::kName, op.fields());
  }
  void enter(std::string_view region) override {
    regions_.emplace_back(region);
    inner_.enter(region);
  }
  void leave() override {
    regions_.pop_back();
    inner_.leave();
  }
  void wait_all() override { inner_.wait_all(); }

 private:
  template <class Fields>
  void check_finite(std::string_view op, const Fields& fields) {
    inner_.wait_all();
    for (const Field& f : fields) {
      if (f.role == Role::in || !*f.tensor) continue;
      const std::string bad = find_nonfinite(*f.tensor);
      if (!bad.empty()) fail(op, f.name, bad);
    }
  }
  [[noreturn]] void fail(std::string_view op, std::string_view field, const std::string& bad) const;

  Backend& inner_;
  Options options_;
  std::vector<std::string> regions_;
};

}  // namespace weft
