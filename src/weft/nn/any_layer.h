// Erases layer types, so that a model can hold any mix of them; and recomputation, a layer around a layer. t tokens of
// this rank's stream, d its width
#pragma once
#include <memory>
#include <utility>

#include "weft/nn/pass.h"

namespace weft {

// From stream to stream: x, y, dy, dx [t, d]. x must live till dgrad, dy till wgrad.
class AnyLayer {
 public:
  struct Saved {
    virtual ~Saved() = default;
  };
  virtual ~AnyLayer() = default;
  virtual std::unique_ptr<Saved> make_saved() const = 0;
  virtual void forward(Pass& p, Saved& s, Tensor x, Tensor y) const = 0;
  virtual void dgrad(Pass& p, Saved& s, Tensor dy, Tensor dx) const = 0;
  virtual void wgrad(Pass& p, Saved& s) const = 0;
};

template <class L>
class LayerOf final : public AnyLayer {
 public:
  explicit LayerOf(const L& layer) : layer_(layer) {}
  std::unique_ptr<Saved> make_saved() const override { return std::make_unique<Holder>(); }
  void forward(Pass& p, Saved& s, Tensor x, Tensor y) const override { layer_.forward(p, in(s), x, y); }
  void dgrad(Pass& p, Saved& s, Tensor dy, Tensor dx) const override { layer_.dgrad(p, in(s), dy, dx); }
  void wgrad(Pass& p, Saved& s) const override { layer_.wgrad(p, in(s)); }

 private:
  struct Holder final : Saved {
    typename L::Saved saved;
  };
  static typename L::Saved& in(Saved& s) { return static_cast<Holder&>(s).saved; }
  const L& layer_;
};

// Keeps only the input of L and runs its forward again before dgrad.                     Chen et al. 2016
template <class L>
class Recompute {
 public:
  struct Saved {
    Tensor x;  // [t, d]  till dgrad (owned by the caller)
    typename L::Saved inner;
  };
  explicit Recompute(const L& layer) : layer_(layer) {}

  void forward(Pass& p, Saved& s, Tensor x, Tensor y) const {
    Scope temporaries(*p.scratch);
    s.x = x;
    Pass forgetful = p;
    forgetful.till_dgrad = forgetful.till_wgrad = forgetful.dgrad_till_wgrad = forgetful.replay = p.scratch;
    layer_.forward(forgetful, s.inner, x, y);
  }
  void dgrad(Pass& p, Saved& s, Tensor dy, Tensor dx) const {
    Scope temporaries(*p.scratch), replayed(*p.replay);
    Tensor y = p.compute(p.scratch, {s.x.rows(), s.x.cols()}, s.x.place);
    Pass again = p;
    again.till_dgrad = p.replay;
    again.till_wgrad = p.dgrad_till_wgrad;
    layer_.forward(again, s.inner, s.x, y);
    layer_.dgrad(again, s.inner, dy, dx);
  }
  void wgrad(Pass& p, Saved& s) const { layer_.wgrad(p, s.inner); }

 private:
  const L& layer_;
};

}  // namespace weft
