// The optimizer's state as a checkpoint has it: which numbers of it a rank keeps, and where they lie in the file.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "weft/models/model_spec.h"
#include "weft/optim/optimizer.h"
#include "weft/sharding/rows_to_save.h"

namespace weft {

inline constexpr const char *kCodesSuffix = ".codes", *kAbsmaxSuffix = ".absmax";  // of names of states in 8 bits

inline std::string state_entry(const ParamSpec& p, const std::string& state) { return p.name + "." + state; }

// Where the parts of a weight lie in the file, of each of its states: those that are numbers in one tensor, one after
// the other, and those that are codes in another, beside one of their blocks' numbers.
struct StatesInFile {
  struct InTensor {
    Run rows;  // of the whole weight
    bool are_codes;
    int64_t first_row, first_block;  // in the tensors
  };
  std::vector<std::string> names;
  std::vector<InTensor> parts;
  int64_t rows_of_numbers = 0, rows_of_codes = 0, blocks = 0;
};

StatesInFile states_in_file(const ParamSpec& p, const Optimizer& optimizer);

inline std::span<std::byte> bytes_of(const Tensor& t) { return {static_cast<std::byte*>(t.data), size_t(t.bytes())}; }

// Calls f(entry, offset in bytes, bytes) for the rows of the optimizer's tensors that this rank keeps (to save: its
// share of them), as `parts` (read_parts, write_parts) gives them; rows that lie together, in memory and in the file,
// at once. A block's number is saved by the rank that saves the block's first element.
enum class Use : uint8_t { load, save };
template <class Parts, class F>
class KeptStates {
 public:
  KeptStates(const ParamStore& params, Use use, const Parts& parts, const F& f)
      : params_(params), use_(use), parts_(parts), f_(f) {}

  template <class Wanted>
  void for_each(const Optimizer& optimizer, const Wanted& wanted) {
    const auto copies = use_ == Use::load ? ParamStore::Copies::with : ParamStore::Copies::without;
    for (const Param* p : params_.params(copies)) {
      if (!wanted(p->spec())) continue;
      const StatesInFile in = states_in_file(p->spec(), optimizer);
      if (in.names.empty()) continue;
      for (const ParamStore::Stored& block : params_.stored(*p)) {
        const Run share = use_ == Use::load ? Run{0, block.rows.count} : rows_to_save(params_, *p, block);
        for (size_t k = 0; share.count > 0 && k < in.names.size(); ++k)
          of_state({.weight = p->spec(), .in = in.parts[size_t(block.part)], .name = in.names[k], .block = block}, k,
                   share);
      }
    }
  }

 private:
  struct Kept {
    const ParamSpec& weight;
    const StatesInFile::InTensor& in;
    const std::string& name;
    const ParamStore::Stored& block;
    int64_t width() const { return width_of(weight); }
    bool is_together() const { return block.cols.count == width(); }
    // The number, in its part, of a row's first element here.
    int64_t element_of_row(int64_t row) const {
      return (block.rows.first + row - in.rows.first) * width() + block.cols.first;
    }
  };
  void of_state(const Kept& kept, size_t k, Run share) {
    const std::string entry = state_entry(kept.weight, kept.in.are_codes ? kept.name + kCodesSuffix : kept.name);
    const Tensor rows = kept.block.states[k].slice_rows(share.first, share.count);
    parts_(params_.memory(), rows, [&](const Tensor& part, int64_t first_row) {
      for (int64_t r = 0; r < (kept.is_together() ? 1 : part.rows()); ++r) {
        const Tensor run = kept.is_together() ? part : part.slice_rows(r, 1);
        const int64_t first = kept.in.first_row * kept.width() + kept.element_of_row(share.first + first_row + r);
        f_(entry, first * size_of(run.dtype), bytes_of(run));
      }
    });
    if (kept.in.are_codes) of_blocks(kept, kept.block.blocks[k], share);
  }
  void of_blocks(const Kept& kept, const StateBlocks& blocks, Run share) {
    const std::string entry = state_entry(kept.weight, kept.name + kAbsmaxSuffix);
    const int64_t first_here = blocks.at.first_block();
    const std::vector<Run> wanted =
        use_ == Use::load ? std::vector<Run>{{first_here, blocks.absmax.elements()}} : blocks_begun(kept, share);
    parts_(params_.memory(), blocks.absmax, [&](const Tensor& part, int64_t first) {
      for (const Run& run : wanted) {
        const Run here = overlap(run, {first_here + first, part.rows()});
        if (here.count == 0) continue;
        const Tensor numbers = part.slice_rows(here.first - first_here - first, here.count);
        f_(entry, (kept.in.first_block + here.first) * size_of(numbers.dtype), bytes_of(numbers));
      }
    });
  }
  // The blocks whose first element is in these rows here.
  static std::vector<Run> blocks_begun(const Kept& kept, Run share) {
    std::vector<Run> all;
    const int64_t at_once = kept.is_together() ? share.count : 1;
    for (int64_t row = share.first; row < share.end(); row += at_once) {
      const int64_t begin = kept.element_of_row(row), end = begin + at_once * kept.block.cols.count;
      const int64_t first = (begin + kCodeBlock - 1) / kCodeBlock, count = (end + kCodeBlock - 1) / kCodeBlock - first;
      if (count > 0) all.push_back({first, count});
    }
    return all;
  }

  const ParamStore& params_;
  const Use use_;
  const Parts& parts_;
  const F& f_;
};
struct EveryWeight {
  bool operator()(const ParamSpec&) const { return true; }
};
// Of the wanted weights.
template <class Parts, class F, class Wanted = EveryWeight>
void for_each_kept(const ParamStore& params, Use use, const Optimizer& optimizer, const Parts& parts, const F& f,
                   const Wanted& wanted = {}) {
  KeptStates<Parts, F>(params, use, parts, f).for_each(optimizer, wanted);
}

// What this rank writes of weights and optimizer state where all ranks save together, in bytes.
int64_t bytes_to_save(const ModelSpec& model, const ParamStore& params, const Optimizer& optimizer);

}  // namespace weft
