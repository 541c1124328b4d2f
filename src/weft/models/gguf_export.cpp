#include "weft/models/gguf_export.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <map>

#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/gguf/gguf_blocks.h"
#include "weft/gguf/gguf_head.h"
#include "weft/models/gguf_config.h"
#include "weft/models/gguf_names.h"
#include "weft/models/weight_source.h"

namespace weft {
namespace {

// general.file_type of a file whose matrices are mostly of this type.
int64_t file_type_of(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q4_0:
      return 2;
    case GgufType::q8_0:
      return 7;
    case GgufType::q5_0:
      return 8;
    case GgufType::q4_k:
      return 14;
    case GgufType::q6_k:
      return 18;
    case GgufType::bf16:
      return 32;
    case GgufType::mxfp4:
      return 38;
  }
  WEFT_CHECK(false, "type {}", uint32_t(type));
}

constexpr int64_t kWholeBlocks = 256;  // numbers of a row: whole blocks of every type

struct InFile {
  GgufName name;
  std::vector<size_t> sources;  // tensors of the source that are in it, in order
};

// The tensors of the file but those of factors, in the order in which the source has the first of each.
std::vector<InFile> tensors_in_file(const ModelSpec& model) {
  std::vector<InFile> all;
  std::map<std::string, size_t> places;
  const std::vector<GgufName> names = gguf_names(model);
  for (const GgufName& name : names) {
    const auto [at, is_new] = places.try_emplace(name.name, all.size());
    if (is_new) all.push_back({name, {}});
    all[at->second].sources.push_back(name.source);
  }
  if (!gguf_repeats_table(model)) return all;
  InFile head = all[places.at("token_embd.weight")];
  head.name.name = "output.weight";
  all.push_back(std::move(head));
  return all;
}

class Exporter {
 public:
  Exporter(const GgufExport& what, const HfConfig& config)
      : what_(what),
        config_(config),
        source_(open_weights(what.model, config.spec)),
        tensors_(tensors_in_file(config.spec)),
        factors_(gguf_rope_factors(config.spec)) {}

  GgufWritten write(const GgufVocabulary& vocabulary, const GgufSink& sink) {
    const std::string head = head_of(vocabulary);
    written_.bytes = int64_t(head.size());
    sink(head);
    for (const GgufFactors& f : factors_) {
      put(std::as_bytes(std::span(f.values)), sink);
      ++written_.num_tensors;
    }
    for (const InFile& t : tensors_) write_tensor(t, sink);
    source_->check_whole();
    for (const std::string& note : source_->notes()) written_.notes.push_back(note);
    add_notes_of_types();
    return std::move(written_);
  }

 private:
  std::string head_of(const GgufVocabulary& vocabulary) {
    GgufHead head;
    written_.notes = write_gguf_config(config_.spec, head);
    head.text("general.type", "model");
    head.text("general.name", what_.name);
    head.u32("general.file_type", file_type_of(what_.type));
    head.u32("general.quantization_version", 2);
    write_gguf_vocabulary(vocabulary, head);
    for (const GgufFactors& f : factors_) head.tensor(f.name, {int64_t(f.values.size())}, GgufType::f32);
    for (const InFile& t : tensors_) head.tensor(t.name.name, t.name.shape, type_of(t.name));
    return head.bytes();
  }

  bool is_head(const GgufName& n) const {
    return n.name == "output.weight" || (config_.spec.tied_head && n.name == "token_embd.weight");
  }
  GgufType type_of(const GgufName& n) const {
    return n.as_f32 ? GgufType::f32 : gguf_type_of_matrix(what_.type, is_head(n), n.shape.back());
  }

  void put(std::span<const std::byte> bytes, const GgufSink& sink) {
    sink({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    const std::string padding = gguf_padding(int64_t(bytes.size()));
    sink(padding);
    written_.bytes += int64_t(bytes.size() + padding.size());
  }

  void write_tensor(const InFile& tensor, const GgufSink& sink) {
    int64_t bytes = 0;
    for (const size_t source : tensor.sources) bytes += write_matrix(tensor.name, source, sink);
    const std::string padding = gguf_padding(bytes);
    sink(padding);
    written_.bytes += bytes + int64_t(padding.size());
    ++written_.num_tensors;
  }

  // Returns its bytes.
  int64_t write_matrix(const GgufName& n, size_t source, const GgufSink& sink) {
    constexpr int64_t kAtOnce = 1 << 20;  // numbers
    const int64_t rows = n.rows(), cols = n.shape.back();
    const GgufType type = type_of(n);
    const int64_t step = std::clamp<int64_t>(kAtOnce / cols, 1, rows);
    const int64_t row_bytes = gguf_bytes(type, 1, cols);
    std::vector<float> numbers(size_t(step * cols));
    std::vector<std::byte> bytes(size_t(step * row_bytes));
    for (int64_t first = 0; first < rows; first += step) {
      const int64_t count = std::min(step, rows - first);
      const std::span<float> here = std::span(numbers).first(size_t(count * cols));
      read_rows(n, source, first, here);
      require_storable(n, type, here);
      parallel_for(count, what_.threads, 1, [&](int64_t begin, int64_t end) {
        encode_blocks(type, here.subspan(size_t(begin * cols), size_t((end - begin) * cols)),
                      std::span(bytes).subspan(size_t(begin * row_bytes), size_t((end - begin) * row_bytes)));
      });
      sink({reinterpret_cast<const char*>(bytes.data()), size_t(count * row_bytes)});
    }
    written_.num_numbers += rows * cols;
    return rows * row_bytes;
  }

  // Rows of a tensor of the file that come of this one, from `first` on.
  void read_rows(const GgufName& n, size_t source, int64_t first, std::span<float> to) const {
    const int64_t cols = n.shape.back(), count = int64_t(to.size()) / cols;
    if (n.vector)
      read_vector(n, source, first * cols, to);
    else if (n.across)
      read_across(n, source, first, to);
    else if (n.period > 0)
      read_shares(n, source, first, to);
    else if (n.turned_heads > 0)
      for (int64_t i = 0; i < count; ++i)
        read(source, folder_row(n, first + i), to.subspan(size_t(i * cols), size_t(cols)), cols);
    else
      read(source, first, to, cols);
    if (n.offset != 0)
      for (float& x : to) x = float(double(x) + n.offset);
  }

  void read(size_t source, int64_t row, std::span<float> to, int64_t cols, int64_t col = 0) const {
    source_->read(
        source, {row, col},
        {.data = to.data(), .dtype = DType::f32, .rows = int64_t(to.size()) / cols, .cols = cols, .row_stride = cols});
  }

  void read_vector(const GgufName& n, size_t source, int64_t first, std::span<float> to) const {
    if (n.turned_heads == 0 && n.period == 0) return read(source, first, to, 1);
    for (size_t i = 0; i < to.size(); ++i) read(source, folder_row(n, first + int64_t(i)), to.subspan(i, 1), 1);
  }

  // Reads what lies between the rows too: of a matrix that is turned on disk, rows by themselves would take long.
  void read_shares(const GgufName& n, size_t source, int64_t first, std::span<float> to) const {
    const int64_t cols = n.shape.back(), count = int64_t(to.size()) / cols;
    const int64_t begin = folder_row(n, first), end = folder_row(n, first + count - 1) + 1;
    std::vector<float> all(size_t((end - begin) * cols));
    read(source, begin, all, cols);
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(all.begin() + (folder_row(n, first + i) - begin) * cols, cols, to.begin() + i * cols);
  }

  void read_across(const GgufName& n, size_t source, int64_t first, std::span<float> to) const {
    const int64_t width = n.width, end = first + int64_t(to.size()) / width;
    for (int64_t row = first; row < end;) {
      const int64_t share = row / n.shape[1], col = row % n.shape[1], count = std::min(end - row, n.shape[1] - col);
      std::vector<float> block(size_t(width * count));
      read(source, share * n.period + n.begin, block, count, col);
      for (int64_t i = 0; i < count; ++i, ++row)
        for (int64_t j = 0; j < width; ++j) to[size_t((row - first) * width + j)] = block[size_t(j * count + i)];
    }
  }

  void require_storable(const GgufName& n, GgufType type, std::span<const float> numbers) const {
    const bool any = type == GgufType::f32 || type == GgufType::bf16;
    for (const float x : numbers)
      if (!std::isfinite(x) || (!any && std::abs(x) > kLargestInBlocks))
        throw FileError(
            fmt::format("{}: {} holds {}, which {} cannot hold{}", what_.model.string(), n.name, x, name_of(type),
                        std::isfinite(x) ? ": --type BF16 can" : " (or no use): is the model's training broken?"));
  }

  void add_notes_of_types() {
    struct Others {
      GgufType type;
      bool head;
      int64_t cols;
      auto operator<=>(const Others&) const = default;
    };
    std::map<Others, int64_t> counts;
    for (const auto& [n, sources] : tensors_)
      if (!n.as_f32 && type_of(n) != what_.type) ++counts[{type_of(n), is_head(n), n.shape.back()}];
    for (const auto& [o, count] : counts) {
      const GgufType wanted = gguf_type_of_matrix(what_.type, o.head, kWholeBlocks);
      const std::string what = o.head ? fmt::format("the head is {}", name_of(o.type))
                                      : fmt::format("{} matrices are {}", count, name_of(o.type));
      written_.notes.push_back(o.type == wanted ? what + ", as llama.cpp has it"
                                                : fmt::format("{}: rows of {} numbers are no whole blocks of {} ({})",
                                                              what, o.cols, name_of(wanted), info_of(wanted).block));
    }
  }

  const GgufExport& what_;
  const HfConfig& config_;
  std::unique_ptr<WeightSource> source_;
  const std::vector<InFile> tensors_;
  const std::vector<GgufFactors> factors_;
  GgufWritten written_;
};

}  // namespace

GgufType gguf_type_of_matrix(GgufType wanted, bool is_head, int64_t cols) {
  if (!is_quantised(wanted)) return wanted;
  if (is_head && (wanted == GgufType::q4_0 || wanted == GgufType::q4_k)) wanted = GgufType::q6_k;
  if (cols % info_of(wanted).block == 0) return wanted;
  wanted = wanted == GgufType::q4_k ? GgufType::q5_0 : GgufType::q8_0;
  return cols % info_of(wanted).block == 0 ? wanted : GgufType::f16;
}

GgufWritten write_gguf(const GgufExport& what, const HfConfig& config, const GgufVocabulary& vocabulary,
                       const GgufSink& sink) {
  return Exporter(what, config).write(vocabulary, sink);
}

}  // namespace weft
