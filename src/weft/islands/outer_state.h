// What a rank keeps of the outer weights and their momentum, beside the weights that it trains.
//
// A fragment (outer_layout.h) is one list of numbers; a rank has those of the blocks of weights that it keeps
// (ParamStore::stored), so that no rank needs a whole model: ranks put runs of the list together, each what it speaks
// for, and each takes out of a run what it keeps.
#pragma once
#include <filesystem>
#include <span>
#include <vector>

#include "weft/checkpoint/safetensors_layout.h"
#include "weft/checkpoint/shared_writer.h"
#include "weft/islands/outer_layout.h"
#include "weft/islands/outer_step.h"
#include "weft/sharding/param_store.h"

namespace weft {

// f32 in the host's memory: 8 bytes for each element that this rank keeps, 4 without momentum. Masters are f32. No call
// is collective; none may be made while a backend works on the masters, and after one that writes them follows
// ParamStore::masters_changed.
class OuterState {
 public:
  // As a run begins: the outer weights are the masters, and nothing has moved.
  OuterState(const OuterLayout& layout, const OuterSpec& spec, ParamStore& params);

  enum class What : uint8_t { sent, outer, momentum };  // sent: what OuterSpec::wire says of the masters
  // Of elements [run) of a fragment, those that this rank speaks for; -0, which adds nothing, at the others' places.
  void put(What what, int64_t fragment, Run run, std::span<float> to) const;
  // Keeps, until `step` or `take`, what comes for a fragment: means of what was sent; or the outer weights, and their
  // momentum.
  void keep(What what, int64_t fragment, Run run, std::span<const float> from);
  // Keeps likewise what `put` says now was sent of a fragment, for Moved::since_sent.
  void keep_sent(int64_t fragment);

  // The outer step by the means that came. The masters become the outer weights.
  void step(int64_t fragment);
  // The outer weights, and the momentum, that came take the place of those here; without momentum that came it is zero.
  // What the masters have moved beside the outer weights stays (a master beside an outer weight that is as it was keeps
  // its bits); or what they have moved since keep_sent alone, where that was called; or they become the outer weights.
  enum class Moved : uint8_t { stays, since_sent, goes };
  void take(int64_t fragment, Moved moved);

  // A sum over the outer weights and momentum that this rank speaks for: over all ranks, and modulo 2^64, the same on
  // any layout.
  uint64_t sum() const;

  // outer.safetensors: "NAME.outer" and "NAME.outer_momentum" of each weight, f32 in its shape; OuterAge in its
  // metadata. Several ranks write it together.
  SafetensorsLayout file_layout(const OuterAge& age) const;
  void write(SharedWriter& writer) const;
  // Returns what it is of. Throws FileError.
  OuterAge read(const std::filesystem::path& file);

  const OuterLayout& layout() const { return layout_; }
  const OuterSpec& spec() const { return spec_; }
  int64_t bytes() const;  // of outer weights and momentum here

 private:
  struct Block {
    int64_t weight;         // of layout_.weights()
    OuterLayout::Place at;  // of the weight
    Run rows, cols;         // of the weight
    int64_t width;          // of a row of the weight
    Run spoken;             // rows of the block
    Tensor master;
    std::vector<float> outer, momentum, came, came_momentum, sent;  // [rows, cols]; came, sent: empty where not kept
    int64_t first_of(int64_t row) const { return at.first + (rows.first + row) * width + cols.first; }
  };
  template <class F>
  void for_each_run(const Block& block, Run rows, Run run, const F& f) const;
  void put_masters(const Block& block, Run run, std::span<float> to) const;
  template <class F>
  void write_masters(Block& block, const F& value_of);
  bool has_momentum() const { return spec_.momentum > 0; }

  const OuterLayout& layout_;
  const OuterSpec spec_;
  const Memory& memory_;
  std::vector<Block> blocks_;
};

}  // namespace weft
