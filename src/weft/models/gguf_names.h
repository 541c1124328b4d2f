// The tensors of a GGUF file, and which tensors of a Hugging Face folder they are. docs/formats/gguf.md has the table.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/models/hf_names.h"
#include "weft/models/model_spec.h"

namespace weft {

// The value of general.architecture for models of this family; empty: llama.cpp has none that weft writes.
std::string_view gguf_architecture(Family family);
// The families that have one, for messages: "llama, mistral, ...".
std::string gguf_families();

// One tensor of the folder, or some of its rows, in GGUF. Matrices are [out, in] there, whatever the folder's are.
struct GgufName {
  std::string name = {};
  std::vector<int64_t> shape = {};
  size_t source = 0;    // of hf_tensors(model)
  int64_t expert = -1;  // the matrix of this expert, of a tensor [experts, out, in] there; -1: the tensor is this one
  // Rows of q and k of so many heads, each turned in neighbouring pairs (2 i, 2 i + 1) there, and in pairs
  // (i, i + half) here; 0: rows stand as they are.
  int64_t turned_heads = 0;
  // Of each `period` rows here, only the `width` from `begin` on are in this tensor: one share of them; 0: all are.
  int64_t period = 0, begin = 0, width = 0;
  bool across = false;  // each share is a matrix [in, width] there
  bool vector = false;  // one column here; there its numbers go on from row to row
  double offset = 0;    // numbers are larger by this there (the 1 of gemma's norms)
  bool as_f32 = false;  // whatever the file's type: norms, biases, positions, routers

  bool has_row(int64_t row) const { return period == 0 || (row % period >= begin && row % period < begin + width); }
  int64_t rows() const;  // that come of the folder's tensor, of `shape`
};

// How a file has the keys and values of all heads that are made of a latent: in a tensor each, with keys turned, as
// llama.cpp makes files; or in one, as its older ones.
enum class GgufLatents : uint8_t { apart, together };

// The names of hf_tensors(model), in that order; a tensor whose rows go to two tensors has two, which then have all of
// its rows between them. The family must have an architecture.
std::vector<GgufName> gguf_names(const ModelSpec& model, GgufLatents latents = GgufLatents::apart);

// Whether output.weight is to be the table once more: the head is tied to it, and llama.cpp does not load the
// architecture without a head.
bool gguf_repeats_table(const ModelSpec& model);

// The row of the GGUF tensor that has this row of the folder's, which it has; and the other way round, of rows counted
// from the first of an expert's. Of a vector: the number. Not of one that goes across.
int64_t gguf_row(const GgufName& name, int64_t row);
int64_t folder_row(const GgufName& name, int64_t row);

}  // namespace weft
