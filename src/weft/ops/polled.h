// A backend around a backend that polls after each op: what this rank has under way goes on beside what it computes.
#pragma once
#include <functional>

#include "weft/ops/backend.h"

namespace weft {

// The inner backend is borrowed.
class Polled final : public UniformBackend<Polled> {
 public:
  Polled(Backend& inner, std::function<void()> poll) : inner_(inner), poll_(std::move(poll)) {}

  template <class Op>
  void apply(const Op& op) {
    inner_.run(op);
    poll_();
  }
  void enter(std::string_view region) override { inner_.enter(region); }
  void leave() override { inner_.leave(); }
  void wait_all() override { inner_.wait_all(); }

 private:
  Backend& inner_;
  std::function<void()> poll_;
};

}  // namespace weft
