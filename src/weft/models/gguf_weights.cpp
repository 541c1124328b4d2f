#include "weft/models/gguf_weights.h"

#include <set>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/forget_pages.h"
#include "weft/base/json.h"
#include "weft/gguf/gguf_file.h"
#include "weft/models/gguf_config.h"
#include "weft/models/gguf_names.h"

namespace weft {
namespace {

std::string text_of(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

class GgufWeights final : public WeightSource {
 public:
  GgufWeights(const std::filesystem::path& path, const ModelSpec& model)
      : file_(path), tensors_(hf_tensors(model)), names_(gguf_names(model)) {
    std::set<std::string_view> expected(kGgufRopeFactors.begin(), kGgufRopeFactors.end());
    std::string wrong;
    for (const GgufName& n : names_) {
      expected.insert(n.name);
      const GgufTensor* t = file_.find(n.name);
      found_.push_back(t);
      if (n.expert > 0) continue;  // said of the first
      if (t == nullptr)
        wrong += fmt::format("\n  {} {} is missing", n.name, text_of(n.shape));
      else if (t->shape != n.shape && !is_one_row(*t, n))
        wrong += fmt::format("\n  {} {} instead of {}", n.name, text_of(t->shape), text_of(n.shape));
      else if (find_gguf_type(t->type) == nullptr)
        wrong += fmt::format("\n  {} is of type number {}", n.name, t->type);
    }
    for (const GgufTensor& t : file_.tensors())
      if (expected.count(t.name) == 0 && !is_copied_table(t, model))
        wrong += fmt::format("\n  {} {}, which the model does not have", in_quotes(t.name), text_of(t.shape));
    if (wrong.size() > kMost) wrong = wrong.substr(0, wrong.rfind('\n', kMost)) + "\n  ...";
    if (!wrong.empty())
      throw FileError(
          fmt::format("{}: its tensors are not those that its metadata ask for, or of another type than F32, F16, "
                      "BF16, Q8_0, Q5_0, "
                      "Q4_0, Q6_K and Q4_K:{}\nconvert the model again, to one of these types",
                      path.string(), wrong));
  }

  const std::vector<HfTensor>& tensors() const override { return tensors_; }
  void forget(size_t index) const override { forget_pages(file_.bytes(*found_[index])); }
  void read(size_t index, BlockStart start, const MatrixOut& to) const override {
    const GgufName& name = names_[index];
    std::vector<float> row(size_t(to.cols));
    for (int64_t i = 0; i < to.rows; ++i) {
      if (name.shape.size() == 1)  // a vector is one row there, and one column here
        file_.read_row(*found_[index], 0, gguf_row(name, start.row + i), row);
      else
        file_.read_row(*found_[index], gguf_row(name, start.row + i), start.col, row);
      for (float& x : row) x = float(double(x) - name.offset);
      auto* const out = static_cast<std::byte*>(to.data) + i * to.row_stride * size_of(to.dtype);
      read_matrix({std::as_bytes(std::span(row)), FileDType::f32, 1, to.cols}, {},
                  {.data = out, .dtype = to.dtype, .rows = 1, .cols = to.cols, .row_stride = to.cols});
    }
  }
  std::vector<std::string> notes() const override { return {}; }
  void check_whole() const override { file_.check_whole(); }

 private:
  static constexpr size_t kMost = 4000;  // bytes of a message

  // A matrix of one row that the file has as a vector.
  static bool is_one_row(const GgufTensor& t, const GgufName& n) {
    return n.shape.size() == 2 && n.shape[0] == 1 && t.shape == std::vector{n.shape[1]};
  }
  bool is_copied_table(const GgufTensor& t, const ModelSpec& model) const {
    return t.name == "output.weight" && model.tied_head && gguf_head_is_table(file_);
  }

  GgufFile file_;
  std::vector<HfTensor> tensors_;
  std::vector<GgufName> names_;           // of each tensor
  std::vector<const GgufTensor*> found_;  // in the file
};

}  // namespace

std::unique_ptr<WeightSource> open_gguf_weights(const std::filesystem::path& path, const ModelSpec& model) {
  return std::make_unique<GgufWeights>(path, model);
}

}  // namespace weft
