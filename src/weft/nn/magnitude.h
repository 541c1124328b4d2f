// The lengths of a matrix's rows, which learn apart from their directions.     Liu et al. 2024, "DoRA"
//   t tokens   V [out, in] = W + scale B A, or what of it is here   n rows of it that are targets, here
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "weft/nn/adapter.h"
#include "weft/nn/matrix_numbers.h"
#include "weft/sharding/boundary.h"

namespace weft {

// y[., j] = m[j] / |V[j]| z[., j] for rows j of targets, y = z elsewhere; z = x V^T.
//   z, y, dy, dz [t, out]   m [n] stat, cut as the rows of B
// |V[j]| is computed in each forward and is a constant to gradients (section 4.3). Where W is cut by columns, ranks add
// the squares of theirs: n numbers. Where W is kept in codes, it is the numbers that these stand for.
class Magnitude {
 public:
  struct Saved {
    Tensor z;        // [t, out]       made by the caller        till dgrad
    Tensor squares;  // [n]      stat  |V[j]|^2                  till dgrad
    Tensor factor;   // [n]      stat  m[j] / |V[j]|             till wgrad
    Tensor dm;       // [n]      stat  the gradient of m         dgrad .. wgrad
  };
  static constexpr std::string_view kSuffix = ".lora_magnitude_vector";  // of m's name, behind the product's
  // None where the store's adapters have no magnitudes. `of` is W; `name`: of the product.
  static std::optional<Magnitude> make(ParamStore& params, const std::string& name, const MatrixNumbers& of,
                                       const Adapter& adapter);
  // Takes weights that are there already.
  Magnitude(Param& m, const MatrixNumbers& of, const Adapter& adapter);

  void forward(Pass& p, Saved& s, Tensor y) const;
  // In dgrad: forward's y again.
  void again(Pass& p, const Saved& s, Tensor y) const;
  // [n] stat, in scratch: m[j] / |V[j]|, as forward has it.
  Tensor factor(Pass& p) const;
  // Returns dz, in scratch.
  Tensor dgrad(Pass& p, Saved& s, Tensor dy) const;
  // Adds to m.grad; reads no weight. Returns dz again, in scratch.
  Tensor wgrad(Pass& p, const Saved& s, Tensor dy) const;

  // [n] stat, in `out`: |W[j]|^2, with which an adapter begins.
  Tensor squares_of_base(Pass& p, Arena& out) const;

 private:
  struct Columns {     // of y; the rows of W
    Adapter::Rows at;  // first_b: of m too
    bool is_target;
    size_t part;  // of W
  };
  Tensor squares(Pass& p, Arena& out, bool with_adapter) const;
  void add_adapter(Pass& p, const Tensor& w, const Adapter::Rows& rows, Tensor squares) const;
  Tensor scaled(Pass& p, const Saved& s, Tensor dy) const;

  Param* m_;
  MatrixNumbers w_;
  Adapter adapter_;
  std::vector<Columns> columns_;  // all, in order
  Boundary join_;
};

}  // namespace weft
