// A model's matrices in few bits, calibrated on text: block by block.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "weft/models/gptq_folder.h"
#include "weft/train/batch_loader.h"
#include "weft/train/machine.h"

namespace weft {

struct GptqRequest {
  const std::filesystem::path& model;  // which model_folder_of has checked
  const ModelSpec& spec;
  const GptqFolder& folder;
  const Machine& machine;                   // of cores
  const std::vector<WholeSample>& windows;  // to calibrate on: at least one, all as long as the first
  // Of the sums of products of inputs at once: where a block has more (experts), its windows pass several times, and
  // the later ones see what the earlier ones left of the block. A sum is never cut.
  int64_t most_bytes = int64_t{4} << 30;
};

// A matrix that fewer inputs came to is rounded number by number.
inline constexpr int64_t kLeastInputs = 128;

struct GptqWritten {
  int64_t num_matrices = 0;
  int64_t num_unseen = 0;               // of them, with fewer than kLeastInputs
  std::string unseen = {};              // the first of these
  std::vector<std::string> notes = {};  // what of the model was passed over, in words
};

// Writes all tensors of the folder. The windows pass through one block after the other, on one rank, in f32: as the
// inputs of a block's matrices are known, these are rounded (models/gptq.h), and the windows go on through what their
// codes stand for. In memory are one block, the stream of all windows ([windows, tokens, width] f32), and the sums.
// `told` hears how many matrices are done. Throws FileError, NumericsError.
GptqWritten write_gptq(const GptqRequest& request, SharedWriter& writer,
                       const std::function<void(int64_t done, int64_t all)>& told);

}  // namespace weft
