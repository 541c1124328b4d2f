#include "weft/models/gguf_weights.h"

#include <algorithm>
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
      : file_(path), tensors_(hf_tensors(fitting(model, file_))), names_(gguf_names(model, latents_of(file_))) {
    std::set<std::string_view> expected(kGgufRopeFactors.begin(), kGgufRopeFactors.end());
    std::string wrong;
    for (const GgufName& n : names_) {
      expected.insert(n.name);
      const GgufTensor* t = file_.find(n.name);
      found_.push_back(t);
      if (first_.size() == n.source) first_.push_back(found_.size() - 1);
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
                      "Q4_0, Q6_K, Q4_K and MXFP4:{}\nconvert the model again, to one of these types",
                      path.string(), wrong));
  }

  const std::vector<HfTensor>& tensors() const override { return tensors_; }
  void forget(size_t index) const override {
    for (size_t i = first_[index]; i < names_.size() && names_[i].source == index; ++i)
      forget_pages(file_.bytes(*found_[i]));
  }
  void read(size_t index, BlockStart start, const MatrixOut& to) const override {
    std::vector<float> row(size_t(to.cols));
    for (int64_t i = 0; i < to.rows;) {
      size_t at = first_[index];
      while (!names_[at].has_row(start.row + i)) ++at;
      const GgufName& name = names_[at];
      if (name.across) {
        i += read_across(at, start, to, i);
        continue;
      }
      const int64_t there = gguf_row(name, start.row + i);
      if (name.vector)
        file_.read_row(*found_[at], there / name.shape.back(), there % name.shape.back(), row);
      else
        file_.read_row(*found_[at], there, start.col, row);
      for (float& x : row) x = float(double(x) - name.offset);
      put(row, to, i++);
    }
  }
  std::vector<std::string> notes() const override { return {}; }
  void check_whole() const override { file_.check_whole(); }

 private:
  static constexpr size_t kMost = 4000;  // bytes of a message

  // Sizes that are written alone take no memory.
  static const ModelSpec& fitting(const ModelSpec& model, const GgufFile& file) {
    double bytes = 0;
    for (const GgufTensor& t : file.tensors()) bytes += double(file.bytes(t).size());
    if (double(model.num_layers) * double(1 + model.experts.count) <= bytes) return model;
    throw FileError(
        fmt::format("{}: its metadata ask for {} layers of {} experts, and its tensors have {} bytes: it "
                    "holds no whole model",
                    file.path().string(), model.num_layers, model.experts.count, bytes));
  }

  static GgufLatents latents_of(const GgufFile& file) {
    return file.find("blk.0.attn_kv_b.weight") == nullptr ? GgufLatents::apart : GgufLatents::together;
  }

  static void put(std::span<const float> row, const MatrixOut& to, int64_t i) {
    auto* const out = static_cast<std::byte*>(to.data) + i * to.row_stride * size_of(to.dtype);
    read_matrix({std::as_bytes(row), FileDType::f32, 1, to.cols}, {},
                {.data = out, .dtype = to.dtype, .rows = 1, .cols = to.cols, .row_stride = to.cols});
  }

  // The rows of `to` from `first` on that are of one share, whose columns are rows of the file. Returns how many.
  int64_t read_across(size_t at, BlockStart start, const MatrixOut& to, int64_t first) const {
    const GgufName& name = names_[at];
    const int64_t row = start.row + first, share = row / name.period, in = row % name.period - name.begin;
    const int64_t count = std::min(to.rows - first, name.width - in);
    std::vector<float> column(size_t(count), 0.0f), rows(size_t(count * to.cols), 0.0f);
    for (int64_t c = 0; c < to.cols; ++c) {
      file_.read_row(*found_[at], share * name.shape[1] + start.col + c, in, column);
      for (int64_t i = 0; i < count; ++i) rows[size_t(i * to.cols + c)] = column[size_t(i)];
    }
    for (int64_t i = 0; i < count; ++i)
      put(std::span(rows).subspan(size_t(i * to.cols), size_t(to.cols)), to, first + i);
    return count;
  }

  // A matrix of one row that the file has as a vector.
  static bool is_one_row(const GgufTensor& t, const GgufName& n) {
    return n.shape.size() == 2 && n.shape[0] == 1 && t.shape == std::vector{n.shape[1]};
  }
  bool is_copied_table(const GgufTensor& t, const ModelSpec& model) const {
    return t.name == "output.weight" && model.tied_head && gguf_head_is_table(file_);
  }

  GgufFile file_;
  std::vector<HfTensor> tensors_;
  std::vector<GgufName> names_;           // of all tensors
  std::vector<const GgufTensor*> found_;  // of each name, in the file
  std::vector<size_t> first_ = {};        // of each tensor: the first of its names
};

}  // namespace

std::unique_ptr<WeightSource> open_gguf_weights(const std::filesystem::path& path, const ModelSpec& model) {
  return std::make_unique<GgufWeights>(path, model);
}

}  // namespace weft
