#include "weft/sharding/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/device/host_parts.h"
#include "weft/sharding/param_store.h"

namespace weft {
namespace {

constexpr int64_t kAtOnce = int64_t{1} << 20;  // elements that are read at once, or a little more

template <size_t N>
constexpr std::array<float, N - 1> midpoints(const std::array<float, N>& levels) {
  std::array<float, N - 1> all{};
  for (size_t i = 0; i + 1 < N; ++i) all[i] = (levels[i] + levels[i + 1]) / 2;
  return all;
}
constexpr auto kNf4Midpoints = midpoints(kNf4Levels);
constexpr auto kMapMidpoints = midpoints(kLevelsWithSign);

// The code of the level nearest to x, the lower one of two.
uint8_t nf4_code(float x) {
  size_t code = 0;  // as many as there are midpoints below x
  for (const size_t half : {8u, 4u, 2u, 1u}) code += kNf4Midpoints[code + half - 1] < x ? half : 0;
  return uint8_t(code);
}
uint8_t map_code(float x) {
  return uint8_t(std::lower_bound(kMapMidpoints.begin(), kMapMidpoints.end(), x) - kMapMidpoints.begin());
}
float relative_to(float x, float most) { return most > 0 ? x / most : x; }

// The largest absolute value; a NaN where a number is not finite.
float largest(std::span<const float> values) {
  float most = 0;
  bool finite = true;
  for (const float x : values) {
    most = std::max(most, std::abs(x));
    finite = finite && std::abs(x) <= std::numeric_limits<float>::max();
  }
  return finite ? most : std::numeric_limits<float>::quiet_NaN();
}

std::span<const std::byte> bytes_of(const auto& values) { return std::as_bytes(std::span(values)); }

// Scales are kept in the dtype of statistics.
void put_scales(const CodedPart& part, DType stat, const std::vector<float>& scales, const CodeSink& sink) {
  if (stat == DType::f64)
    sink.put(part.scales.first, bytes_of(std::vector<double>(scales.begin(), scales.end())));
  else
    sink.put(part.scales.first, bytes_of(scales));
}

class Quantiser {
 public:
  Quantiser(const MatrixRows& matrix, const CodedPart& part, int num_threads, const CodeSink& sink)
      : matrix_(matrix),
        part_(part),
        at_(part.at),
        rows_here_{at_.origin / std::max<int64_t>(1, at_.stride), at_.rows},
        num_threads_(num_threads),
        sink_(sink) {
    WEFT_CHECK(at_.stride == matrix.cols && rows_here_.end() <= matrix.rows, "{}: codes of another matrix",
               matrix.name);
  }

  void run(DType stat) {
    const bool nf4 = at_.as == WeightCodes::nf4;
    scales_.resize(size_t(nf4 ? (matrix_.rows * matrix_.cols + kNf4Block - 1) / kNf4Block : matrix_.rows));
    std::vector<float> values;
    const int64_t step = rows_at_once();
    for (int64_t first = 0; first < matrix_.rows; first += step) {
      const Run rows{first, std::min(step, matrix_.rows - first)};
      values.resize(size_t(rows.count * matrix_.cols));
      matrix_.read(rows, values.data());
      find_scales(rows, values);
      put_codes(rows, values);
    }
    if (nf4) return put_nf4_scales(stat);
    for (float& most : scales_) most /= 127;
    scales_.erase(scales_.begin() + rows_here_.end(), scales_.end());
    scales_.erase(scales_.begin(), scales_.begin() + rows_here_.first);
    put_scales(part_, stat, scales_, sink_);
  }

 private:
  // So many rows end where a block does.
  int64_t rows_at_once() const {
    const int64_t whole = kNf4Block / std::gcd(kNf4Block, matrix_.cols);
    return whole * std::max<int64_t>(1, kAtOnce / (whole * matrix_.cols));
  }
  int64_t scale_elements() const { return at_.as == WeightCodes::nf4 ? kNf4Block : matrix_.cols; }

  void find_scales(Run rows, std::span<const float> values) {
    const int64_t each = scale_elements(), first = rows.first * matrix_.cols / each,
                  count = (int64_t(values.size()) + each - 1) / each;
    parallel_for(count, num_threads_, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto from = size_t(i * each);
        const float most = largest(values.subspan(from, std::min(size_t(each), values.size() - from)));
        if (!(most >= 0)) refuse(rows.first, values);
        scales_[size_t(first + i)] = most;
      }
    });
  }
  [[noreturn]] void refuse(int64_t first_row, std::span<const float> values) const {
    const auto bad = std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
    int64_t row = matrix_.first_row + first_row + (bad - values.begin()) / matrix_.cols,
            col = (bad - values.begin()) % matrix_.cols;
    if (matrix_.transposed) std::swap(row, col);
    throw FileError(fmt::format("{}: row {}, column {} is {}, which has no code: repair the weights", matrix_.name, row,
                                col, *bad));
  }

  // Puts the codes of those among these rows that are kept here.
  void put_codes(Run rows, std::span<const float> values) const {
    const int64_t of_row = at_.codes_of_row();
    const Run wanted = overlap(sink_.wanted, part_.codes);
    if (wanted.count == 0) return;
    const int64_t first_wanted = rows_here_.first + (wanted.first - part_.codes.first) / of_row,
                  end_wanted = rows_here_.first + (wanted.end() - part_.codes.first + of_row - 1) / of_row;
    const int64_t begin = std::max(rows.first, first_wanted), end = std::min(rows.end(), end_wanted);
    if (begin >= end) return;
    std::vector<uint8_t> codes(size_t((end - begin) * of_row));
    parallel_for(end - begin, num_threads_, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t row = begin + i;
        const float* from = values.data() + (row - rows.first) * matrix_.cols + at_.origin % at_.stride;
        uint8_t* to = codes.data() + i * of_row;
        at_.as == WeightCodes::nf4 ? write_nf4(row, from, to) : write_int8(row, from, to);
      }
    });
    sink_.put(part_.codes.first + (begin - rows_here_.first) * of_row, bytes_of(codes));
  }
  void write_nf4(int64_t row, const float* from, uint8_t* to) const {
    const int64_t first = row * at_.stride + at_.origin % at_.stride;
    const auto code = [&](int64_t j) {
      return nf4_code(relative_to(from[j], scales_[size_t((first + j) / kNf4Block)]));
    };
    for (int64_t j = 0; j < at_.cols; j += 2) to[j / 2] = uint8_t(code(j) << 4 | (j + 1 < at_.cols ? code(j + 1) : 0));
  }
  void write_int8(int64_t row, const float* from, uint8_t* to) const {
    const float most = scales_[size_t(row)];  // so small, perhaps, that 127 / most is infinite
    for (int64_t j = 0; j < at_.cols; ++j)
      to[j] = uint8_t(most > 0 ? int8_t(std::nearbyint(from[j] / most * 127)) : int8_t{0});
  }

  // The maxima less their mean, as codes in blocks.
  void put_nf4_scales(DType stat) const {
    double sum = 0;
    for (const float most : scales_) sum += double(most);
    const auto mean = float(sum / double(scales_.size()));
    std::vector<float> apart(scales_), groups;
    for (float& x : apart) x -= mean;
    for (size_t i = 0; i < apart.size(); i += size_t(kCodeBlock))
      groups.push_back(largest(std::span(apart).subspan(i, std::min(size_t(kCodeBlock), apart.size() - i))));
    const auto code = [&](int64_t block) {
      return map_code(relative_to(apart[size_t(block)], groups[size_t(block / kCodeBlock)]));
    };
    std::vector<uint8_t> maxima(size_t(at_.num_maxima()));
    for (int64_t i = 0; i < at_.rows; ++i)
      for (int64_t block = at_.block_of(i, 0); block <= at_.block_of(i, at_.cols - 1); ++block)
        maxima[size_t(at_.first_maximum(i) + block - at_.block_of(i, 0))] = code(block);
    sink_.put(part_.maxima.first, bytes_of(maxima));
    std::vector<float> scales{mean};
    const auto of_part = groups.begin() + at_.first_group();
    scales.insert(scales.end(), of_part, of_part + at_.num_scales() - 1);
    put_scales(part_, stat, scales, sink_);
  }

  const MatrixRows& matrix_;
  const CodedPart& part_;
  const CodedRectangle& at_;
  Run rows_here_;  // of the matrix
  int num_threads_;
  const CodeSink& sink_;
  std::vector<float> scales_;  // of all blocks, or of all rows
};

}  // namespace

void quantise(const MatrixRows& matrix, const CodedPart& part, DType stat, int num_threads, const CodeSink& sink) {
  if (part.at.rows * part.at.cols == 0) return;
  Quantiser(matrix, part, num_threads, sink).run(stat);
}

void quantise(const MatrixRows& matrix, const ParamStore& params, const Param& weight, size_t part, int num_threads) {
  const ParamStore::StoredCodes kept = params.stored_codes(weight);
  const DType stat = params.precision().stat;
  const auto put = [&](int64_t first, std::span<const std::byte> bytes) {
    const Run run = overlap({first, int64_t(bytes.size())}, kept.run);
    if (run.count == 0) return;
    write_parts(params.memory(), kept.bytes.slice_rows(run.first - kept.run.first, run.count),
                [&](const Tensor& part, int64_t at) {
                  std::memcpy(part.data, bytes.data() + (run.first - first) + at, size_t(part.bytes()));
                });
  };
  quantise(matrix, coded_parts(weight.spec(), weight.parts(), stat)[part], stat, num_threads,
           {.wanted = kept.run, .put = put});
}

void round_to_codes(WeightCodes as, const std::string& name, int64_t cols, std::span<float> values, int num_threads) {
  const int64_t rows = int64_t(values.size()) / cols;
  const ParamSpec weight{.name = name, .shape = {rows, cols}, .place = {}, .codes = as};
  const std::vector<HeldPart> whole{
      {.rows = {0, rows}, .cols = {0, cols}, .local_row = 0, .held = {}, .part_rows = {0, rows}}};
  const CodedPart part = coded_parts(weight, whole, DType::f32)[0];
  std::vector<std::byte> bytes(size_t(coded_bytes(weight, whole, DType::f32)));
  quantise(
      {.name = name,
       .rows = rows,
       .cols = cols,
       .read = [&](Run some, float* to) { std::copy_n(values.data() + some.first * cols, some.count * cols, to); }},
      part, DType::f32, num_threads,
      {.wanted = {0, int64_t(bytes.size())}, .put = [&](int64_t first, std::span<const std::byte> from) {
         std::copy(from.begin(), from.end(), bytes.begin() + first);
       }});
  const auto* codes = reinterpret_cast<const uint8_t*>(bytes.data());
  const CodedNumbers<float> numbers{codes + part.codes.first, codes + part.maxima.first,
                                    reinterpret_cast<const float*>(codes + part.scales.first), part.at};
  parallel_for(rows, num_threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < cols; ++j) values[size_t(i * cols + j)] = numbers(i, j);
  });
}

}  // namespace weft
