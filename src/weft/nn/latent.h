// A narrow copy of the stream, from which heads are made.
//   t tokens of this rank's stream   d width of the stream   c width of the latent   r columns beside it that rotate
#pragma once
#include <string>

#include "weft/nn/norm.h"
#include "weft/nn/projection.h"

namespace weft {

// y = [norm(x) | rotated k], where [x | k] = h W^T.                                DeepSeek-V2, 2024, sec. 2.1
//   h, dh [t, d]   y, dy [t, c + r]: placed like the stream, never cut along columns   W [c + r, d], whole
class Latent {
 public:
  struct Spec {
    int64_t width, rank;
    int64_t rotated;  // columns beside the latent; may be 0
    bool interleaved;
    double norm_eps;
    const Tensor* rope_table;  // [P, r] of the model. Read when layers run
    double init_std;
  };
  struct Saved {
    Tensor raw;              // [t, c + r]  x and rotated k       till dgrad
    StreamNorm::Saved norm;  //
    Projection::Saved down;
    Tensor y;     // [t, c + r]  till wgrad; or dgrad .. wgrad where activations are not kept
    Tensor draw;  // [t, c + r]  dgrad .. wgrad
  };
  Latent(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan);
  int64_t rank() const { return spec_.rank; }

  // Lives till wgrad where activations are kept, else in scratch.
  Tensor forward(Pass& p, Saved& s, Tensor h) const;
  // In dgrad, before it is needed: y as it was.
  Tensor again(Pass& p, Saved& s) const;
  void dgrad(Pass& p, Saved& s, Tensor dy, Tensor dh) const;
  void wgrad(Pass& p, const Saved& s, Tensor h) const;

 private:
  Tensor of_rank(const Tensor& y) const { return y.slice_cols(0, spec_.rank); }
  Tensor beside(const Tensor& y) const { return y.slice_cols(spec_.rank, spec_.rotated); }
  void rotate(Pass& p, Tensor k, bool inverse) const;

  Spec spec_;
  bool keep_;
  Projection down_;
  StreamNorm norm_;
};

}  // namespace weft
