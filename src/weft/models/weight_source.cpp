#include "weft/models/weight_source.h"

#include <utility>

#include "weft/base/forget_pages.h"
#include "weft/gguf/gguf_file.h"
#include "weft/models/gguf_weights.h"

namespace weft {
namespace {

class FolderWeights final : public WeightSource {
 public:
  FolderWeights(SafetensorsFolder folder, const ModelSpec& model, bool of_adapter)
      : folder_(std::move(folder)),
        match_(of_adapter ? match_adapter_tensors(model, folder_) : match_hf_tensors(model, folder_)) {
    for (const FoundHfTensor& found : match_.tensors) tensors_.push_back(found.tensor);
  }
  const std::vector<HfTensor>& tensors() const override { return tensors_; }
  void read(size_t index, BlockStart start, const MatrixOut& to) const override {
    read_hf_rows(match_.tensors[index], folder_, start, to);
  }
  void forget(size_t index) const override {
    const FoundHfTensor& found = match_.tensors[index];
    if (found.tensor.slice + 1 == found.tensor.slices) forget_pages(folder_.bytes(found.source));
  }
  std::vector<std::string> notes() const override { return match_.notes; }
  void check_whole() const override { folder_.check_whole(); }

 private:
  SafetensorsFolder folder_;
  HfMatch match_;  // points into the folder
  std::vector<HfTensor> tensors_;
};

}  // namespace

std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& path, const ModelSpec& model) {
  if (is_gguf(path)) return open_gguf_weights(path, model);
  return std::make_unique<FolderWeights>(SafetensorsFolder::open(path), model, false);
}

std::unique_ptr<WeightSource> open_adapter(const std::filesystem::path& file, const ModelSpec& model) {
  return std::make_unique<FolderWeights>(SafetensorsFolder::of_file(file), model, true);
}

}  // namespace weft
