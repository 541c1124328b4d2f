#include "weft/models/hf_weights.h"

#include <algorithm>
#include <map>

#include "weft/checkpoint/checkpoint_check.h"
#include "weft/device/host_parts.h"
#include "weft/models/hf_names.h"
#include "weft/models/peft.h"
#include "weft/models/weight_source.h"
#include "weft/sharding/quantise.h"
#include "weft/sharding/rows_to_save.h"

namespace weft {
namespace {

FileDType file_dtype(DType t) {
  return t == DType::f64 ? FileDType::f64 : t == DType::bf16 ? FileDType::bf16 : FileDType::f32;
}

// What a rank keeps of one tensor of the folder: a block of the tensor's rows [first_row, first_row + rows) of a
// weight.
struct StoredBlock {
  BlockStart at;  // in those rows
  Tensor master;
};
class Stores {
 public:
  enum class Use : uint8_t { load, save };
  Stores(const ParamStore& params, Use use) : params_(params), saves_(use == Use::save) {
    for (const Param* p : params.params(saves_ ? ParamStore::Copies::without : ParamStore::Copies::with))
      names_[p->spec().name] = p;
  }
  // Null: of other ranks.
  const Param* weight_of(const HfTensor& tensor) const {
    const auto found = names_.find(tensor.param);
    return found == names_.end() ? nullptr : found->second;
  }
  // To load, all that this rank keeps of the tensor; to save, its share of that. Those of a weight that this rank has
  // nothing of are none.
  std::vector<StoredBlock> blocks_of(const HfTensor& tensor) const {
    std::vector<StoredBlock> blocks;
    const Param* weight = weight_of(tensor);
    if (weight == nullptr) return blocks;
    for (const ParamStore::Stored& s : params_.stored(*weight)) {
      const Run share = saves_ ? rows_to_save(params_, *weight, s) : Run{0, s.rows.count};
      const int64_t first = std::max(s.rows.first + share.first, tensor.first_row);
      const int64_t end = std::min(s.rows.first + share.end(), tensor.first_row + tensor.rows);
      if (first >= end) continue;
      blocks.push_back(
          {{first - tensor.first_row, s.cols.first}, s.master.slice_rows(first - s.rows.first, end - first)});
    }
    return blocks;
  }

 private:
  const ParamStore& params_;
  const bool saves_;
  std::map<std::string, const Param*> names_;
};

// Writes a rectangle of a file's matrix from its bytes in order.
class Rectangle {
 public:
  struct Where {
    std::string_view tensor;
    int64_t first, bytes, apart;  // bytes: of the first row's beginning, of a row, from row to row
  };
  Rectangle(SharedWriter& writer, Where where) : writer_(writer), where_(where) {}
  void operator()(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const int64_t row = done_ / where_.bytes, in_row = done_ % where_.bytes;
      const auto n = size_t(std::min<int64_t>(where_.bytes - in_row, int64_t(bytes.size())));
      writer_.write(where_.tensor, where_.first + row * where_.apart + in_row, bytes.first(n));
      bytes = bytes.subspan(n);
      done_ += int64_t(n);
    }
  }

 private:
  SharedWriter& writer_;
  Where where_;
  int64_t done_ = 0;
};

void write_block(SharedWriter& writer, const HfTensor& t, const StoredBlock& block) {
  const FileDType dtype = file_dtype(block.master.dtype);
  const int64_t size = bits_of(dtype) / 8, rows = block.master.rows(), cols = block.master.cols();
  const int64_t width = t.transposed ? t.rows : t.cols();
  const int64_t before = t.slice * t.rows * t.cols();
  const int64_t first =
      before + (t.transposed ? block.at.col * width + block.at.row : block.at.row * width + block.at.col);
  Rectangle to(writer, {t.name, first * size, (t.transposed ? rows : cols) * size, width * size});
  stream_matrix({.data = block.master.data,
                 .dtype = block.master.dtype,
                 .rows = rows,
                 .cols = cols,
                 .row_stride = block.master.row_stride},
                dtype, t.transposed, [&](std::span<const std::byte> bytes) { to(bytes); });
}

}  // namespace

std::vector<std::string> load_hf_weights(const std::filesystem::path& folder, const ModelSpec& model,
                                         const ParamStore& params, int num_threads) {
  const std::string note = require_whole(folder, CheckpointPart::model, *params.mesh().world, num_threads);
  std::vector<std::string> notes = read_hf_weights(folder, model, params, num_threads);
  if (!note.empty()) notes.push_back(note);
  return notes;
}

namespace {

// The parts of a weight that a tensor of the source has, as codes.
void read_codes(const WeightSource& source, size_t tensor, const std::filesystem::path& path, const ParamStore& params,
                const Param& weight, int num_threads) {
  const HfTensor& t = source.tensors()[tensor];
  for (size_t i = 0; i < weight.parts().size(); ++i) {
    const Run part = weight.parts()[i].part_rows;
    if (part.first < t.first_row || part.end() > t.first_row + t.rows) continue;
    const int64_t cols = t.cols(), first = part.first - t.first_row;
    quantise({.name = fmt::format("{}: {}", path.string(), t.name),
              .rows = part.count,
              .cols = cols,
              .read =
                  [&](Run rows, float* to) {
                    source.read(
                        tensor, {first + rows.first, 0},
                        {.data = to, .dtype = DType::f32, .rows = rows.count, .cols = cols, .row_stride = cols});
                  },
              .first_row = first,
              .transposed = t.transposed},
             params, weight, i, num_threads);
  }
}

void read_all(const WeightSource& source, const std::filesystem::path& path, const ParamStore& params,
              int num_threads) {
  const Stores stores(params, Stores::Use::load);
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const HfTensor& t = source.tensors()[i];
    if (const Param* weight = stores.weight_of(t); weight != nullptr && weight->spec().in_codes()) {
      read_codes(source, i, path, params, *weight, num_threads);
      source.forget(i);
      continue;
    }
    for (const StoredBlock& block : stores.blocks_of(t)) {
      write_parts(params.memory(), block.master, [&](const Tensor& to, int64_t first_row) {
        source.read(
            i, {block.at.row + first_row, block.at.col},
            {.data = to.data, .dtype = to.dtype, .rows = to.rows(), .cols = to.cols(), .row_stride = to.row_stride});
      });
    }
    source.forget(i);
  }
  source.check_whole();
}

// Returns what was passed over.
std::vector<std::string> read_adapter(const std::filesystem::path& folder, const ModelSpec& model,
                                      const ParamStore& params) {
  const auto source = open_adapter(folder / kAdapterFile, model);
  read_all(*source, folder / kAdapterFile, params, 1);
  return source->notes();
}

}  // namespace

std::vector<std::string> read_hf_weights(const std::filesystem::path& folder, const ModelSpec& model,
                                         const ParamStore& params, int num_threads) {
  const bool is_adapter = is_adapter_folder(folder);
  const auto base = is_adapter ? base_of_adapter(folder, read_peft_config(folder)) : folder;
  const auto source = open_weights(base, model);
  read_all(*source, base, params, num_threads);
  std::vector<std::string> notes = source->notes();
  if (!is_adapter) return notes;
  for (std::string& note : read_adapter(folder, model, params)) notes.push_back(std::move(note));
  if (model.adapter->trains_score)  // it is there after all
    std::erase_if(notes, [](const std::string& note) { return note.starts_with("score.weight is not there"); });
  return notes;
}

void read_adapter_weights(const std::filesystem::path& folder, const ModelSpec& model, const ParamStore& params) {
  read_adapter(folder, model, params);
}

SafetensorsLayout hf_layout(const ModelSpec& model, DType dtype) {
  std::vector<TensorInFile> tensors;
  for (const HfTensor& t : trained_tensors(model))
    if (t.slice == 0) tensors.push_back({t.name, file_dtype(dtype), t.shape});
  if (model.adapter) return SafetensorsLayout(std::string(kAdapterFile), std::move(tensors), model_metadata());
  return SafetensorsLayout::of_model(std::move(tensors));
}

void write_hf_weights(SharedWriter& writer, const ModelSpec& model, const ParamStore& params) {
  const Stores stores(params, Stores::Use::save);
  for (const HfTensor& t : trained_tensors(model))
    for (const StoredBlock& block : stores.blocks_of(t))
      read_parts(params.memory(), block.master, [&](const Tensor& part, int64_t first_row) {
        write_block(writer, t, {{block.at.row + first_row, block.at.col}, part});
      });
}

int64_t bytes_of_hf_weights(const ModelSpec& model, const ParamStore& params) {
  const Stores stores(params, Stores::Use::save);
  int64_t bytes = 0;
  for (const HfTensor& t : trained_tensors(model))
    for (const StoredBlock& block : stores.blocks_of(t)) bytes += block.master.bytes();
  return bytes;
}

}  // namespace weft
