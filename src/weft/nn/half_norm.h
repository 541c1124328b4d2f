// What stands before and behind each half of a block, where a model has a norm there.   t tokens here, d width
#pragma once
#include <optional>
#include <string>

#include "weft/nn/norm.h"

namespace weft {

// h = norm(sum), or a copy of sum where there is no norm;  sum = x + delta.
class NormBefore {
 public:
  using Saved = StreamNorm::Saved;
  NormBefore(ParamStore& params, const std::string& name, const StreamNorm::Spec& spec, bool exists) {
    if (exists) norm_.emplace(params, name, spec);
  }
  void forward(Pass& p, Saved& s, Tensor x, Tensor h) const;
  void forward_add(Pass& p, Saved& s, Tensor x, Tensor delta, Tensor sum, Tensor h) const;
  void again(Pass& p, const Saved& s, Tensor h) const;
  // dx = carry + what comes through h.
  void dgrad(Pass& p, Saved& s, Tensor dh, Tensor carry, Tensor dx) const;
  void wgrad(Pass& p, const Saved& s) const;

 private:
  std::optional<StreamNorm> norm_;
};

// What a half adds to the stream: norm(a), or a itself.
class NormBehind {
 public:
  struct Saved {
    StreamNorm::Saved norm;  // of a copy of a [t, d]  till dgrad
  };
  NormBehind(ParamStore& params, const std::string& name, const StreamNorm::Spec& spec, bool exists) {
    if (exists) norm_.emplace(params, name, spec);
  }
  // a, and the result, lie in scratch.
  Tensor forward(Pass& p, Saved& s, Tensor a) const;
  // The gradient of a, from that of what was added: dy itself, or dgrad .. wgrad.
  Tensor dgrad(Pass& p, Saved& s, Tensor dy) const;
  void wgrad(Pass& p, const Saved& s) const;

 private:
  std::optional<StreamNorm> norm_;
};

}  // namespace weft
