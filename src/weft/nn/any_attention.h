// Erases which kind of attention a block has.   t tokens of this rank's stream, d its width
#pragma once
#include <memory>
#include <utility>

#include "weft/nn/kv_cache.h"
#include "weft/nn/pass.h"

namespace weft {

// h, dy and results [t, d]. h must live till wgrad, dy too.
class AnyAttention {
 public:
  struct Saved {
    virtual ~Saved() = default;
  };
  virtual ~AnyAttention() = default;
  virtual std::unique_ptr<Saved> make_saved() const = 0;
  // Results lie in scratch, placed like the stream.
  virtual Tensor forward(Pass& p, Saved& s, Tensor h) const = 0;
  virtual Tensor dgrad(Pass& p, Saved& s, Tensor dy) const = 0;
  virtual void wgrad(Pass& p, const Saved& s, Tensor h) const = 0;
  virtual KvCache make_cache(Arena& arena, DType compute, int64_t rows) const = 0;
  // Forward, for text to go on: keys and values go to the cache. Nothing is saved.
  virtual Tensor decode(Pass& p, const KvCache& cache, const CacheUse& use, Tensor h) const = 0;
};

template <class A>
class AttentionOf final : public AnyAttention {
 public:
  template <class... Args>
  explicit AttentionOf(Args&&... args) : attention_(std::forward<Args>(args)...) {}
  std::unique_ptr<Saved> make_saved() const override { return std::make_unique<Holder>(); }
  Tensor forward(Pass& p, Saved& s, Tensor h) const override { return attention_.forward(p, in(s), h); }
  Tensor dgrad(Pass& p, Saved& s, Tensor dy) const override { return attention_.dgrad(p, in(s), dy); }
  void wgrad(Pass& p, const Saved& s, Tensor h) const override {
    attention_.wgrad(p, static_cast<const Holder&>(s).saved, h);
  }
  KvCache make_cache(Arena& arena, DType compute, int64_t rows) const override {
    return attention_.make_cache(arena, compute, rows);
  }
  Tensor decode(Pass& p, const KvCache& cache, const CacheUse& use, Tensor h) const override {
    return attention_.decode(p, cache, use, h);
  }

 private:
  struct Holder final : Saved {
    typename A::Saved saved;
  };
  static typename A::Saved& in(Saved& s) { return static_cast<Holder&>(s).saved; }
  A attention_;
};

}  // namespace weft
