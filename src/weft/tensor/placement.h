// How the ranks of a mesh hold a tensor: one Spmd value for each axis.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// On one mesh axis. The gradient of a tensor is held on the dual: Replicate <-> Partial, the others are self-dual.
enum class Spmd : uint8_t {
  None,       // not an axis of this tensor's view of the ranks (dense tensors: edp, ep; expert tensors: dp, cp)
  Replicate,  // whole on every rank; each uses it for different work, so gradients differ and must be summed
  Invariant,  // whole on every rank; all do the same work, so gradients are equal already
  Shard0,     // each rank holds a slice of dim 0 (tokens, or the rows of a weight)
  Shard1,     // each rank holds a slice of dim 1 (columns)
  Partial,    // the true value is the sum over ranks
};

constexpr Spmd dual(Spmd s) { return s == Spmd::Replicate ? Spmd::Partial : s == Spmd::Partial ? Spmd::Replicate : s; }
constexpr bool is_cut(Spmd s) { return s == Spmd::Shard0 || s == Spmd::Shard1; }
std::string_view name_of(Spmd s);

// Axes of the mesh. Placements speak of two views of the same ranks: dense tensors of dp, cp, tp; expert tensors of
// edp, ep, tp. pp is no axis of a tensor.
enum class Axis : uint8_t { dp, cp, tp, edp, ep, pp };
inline constexpr int kAxes = 5;  // of placements
std::string_view name_of(Axis axis);

class Placement {
 public:
  constexpr Placement() = default;  // None everywhere: host-side data
  constexpr Placement(Spmd dp, Spmd cp, Spmd tp) : on_{dp, cp, tp, Spmd::None, Spmd::None} {}

  constexpr Spmd operator[](Axis axis) const { return on_.at(size_t(axis)); }
  constexpr Placement with(Axis axis, Spmd s) const {
    Placement p = *this;
    p.on_.at(size_t(axis)) = s;
    return p;
  }
  // How tensor-parallel ranks hold it.
  constexpr Spmd tp() const { return (*this)[Axis::tp]; }
  constexpr Placement on_tp(Spmd s) const { return with(Axis::tp, s); }
  // Ranks of the data axes (dp and cp, or edp) have summands of it: it is a gradient of a weight.
  constexpr bool is_summed_over_data() const {
    return (*this)[Axis::dp] == Spmd::Partial || (*this)[Axis::edp] == Spmd::Partial;
  }
  // Each rank of ep has others of the experts whose weights lie one behind the other in dim 0.
  constexpr bool experts_are_cut() const { return (*this)[Axis::ep] == Spmd::Shard0; }
  constexpr Placement dual() const {
    Placement p;
    for (size_t a = 0; a < kAxes; ++a) p.on_[a] = weft::dual(on_[a]);
    return p;
  }
  constexpr bool operator==(const Placement&) const = default;
  std::string to_string() const;  // "dp:Shard0 cp:Shard0 tp:Replicate"

 private:
  std::array<Spmd, kAxes> on_{};
};

// Activations are cut by tokens over dp and cp; `tp` says how the tensor-parallel ranks hold them.
constexpr Placement tokens(Spmd tp) { return {Spmd::Shard0, Spmd::Shard0, tp}; }
// Dense weights are whole on dp and cp, where the ranks use them for different tokens.
constexpr Placement weights(Spmd tp) { return {Spmd::Replicate, Spmd::Replicate, tp}; }
// Weights of experts: each rank of ep has others, which the ranks of edp use for different tokens.
constexpr Placement expert_weights(Spmd tp) {
  return Placement{}.with(Axis::edp, Spmd::Replicate).with(Axis::ep, Spmd::Shard0).with(Axis::tp, tp);
}
// Rows that experts work on: each rank of edp and of ep has others.
constexpr Placement expert_rows(Spmd tp) {
  return Placement{}.with(Axis::edp, Spmd::Shard0).with(Axis::ep, Spmd::Shard0).with(Axis::tp, tp);
}

}  // namespace weft
