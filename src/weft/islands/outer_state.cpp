#include "weft/islands/outer_state.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "weft/base/error.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/checkpoint/word_sum.h"
#include "weft/device/host_parts.h"
#include "weft/sharding/rows_to_save.h"
#include "weft/sharding/state_format.h"

namespace weft {
namespace {

constexpr const char *kOuterFile = "outer.safetensors", *kOuterEntry = ".outer", *kMomentumEntry = ".outer_momentum";
constexpr int64_t kMostRounds = int64_t{1} << 53;

Run overlap_of(Run a, Run b) {
  const int64_t first = std::max(a.first, b.first), end = std::min(a.end(), b.end());
  return {first, std::max<int64_t>(0, end - first)};
}

OuterAge age_in(const SafetensorsFile& file) {
  const auto number = [&](const char* key) {
    const auto found = file.metadata().find(key);
    int64_t n = -1;
    if (found != file.metadata().end()) {
      const char* end = found->second.data() + found->second.size();
      if (std::from_chars(found->second.data(), end, n).ptr != end) n = -1;
    }
    if (n < 0 || n > kMostRounds)
      throw FileError(
          fmt::format("{}: does not say which rounds of islands it is of: {} is missing", file.path().string(), key));
    return n;
  };
  return {.rounds = number("rounds"), .step = number("step"), .since = number("since")};
}

}  // namespace

OuterState::OuterState(const OuterLayout& layout, const OuterSpec& spec, ParamStore& params)
    : layout_(layout), spec_(spec), memory_(params.memory()) {
  const std::vector<Param*> ours = params.params();
  const std::set<const Param*> spoken(ours.begin(), ours.end());
  std::map<std::string, int64_t> numbers;
  for (const ParamSpec& p : layout.weights()) numbers.emplace(p.name, int64_t(numbers.size()));
  for (const Param* p : params.params(ParamStore::Copies::with)) {
    if (!p->learns()) continue;
    for (const ParamStore::Stored& s : params.stored(*p)) {
      if (s.rows.count == 0 || s.cols.count == 0) continue;
      WEFT_CHECK(s.master.dtype == DType::f32, "{}: masters of {}", p->spec().name, name_of(s.master.dtype));
      const auto elements = size_t(s.rows.count * s.cols.count);
      Block block{.weight = numbers.at(p->spec().name),
                  .at = layout.place_of(p->spec().name),
                  .rows = s.rows,
                  .cols = s.cols,
                  .width = width_of(p->spec()),
                  .spoken = spoken.count(p) > 0 ? rows_to_save(params, *p, s) : Run{},
                  .master = s.master,
                  .outer = std::vector<float>(elements),
                  .momentum = std::vector<float>(has_momentum() ? elements : 0),
                  .came = {},
                  .came_momentum = {},
                  .sent = {}};
      read_parts(memory_, block.master, [&](const Tensor& part, int64_t first_row) {
        for (int64_t r = 0; r < part.rows(); ++r)
          std::copy_n(part.as<float>() + r * part.row_stride, block.cols.count,
                      block.outer.data() + (first_row + r) * block.cols.count);
      });
      blocks_.push_back(std::move(block));
    }
  }
}

// Calls f(element of the block, element of the run, how many) for what these rows of a block have of a run.
template <class F>
void OuterState::for_each_run(const Block& block, Run rows, Run run, const F& f) const {
  if (rows.count == 0 || run.count == 0) return;
  const bool together = block.cols.count == block.width;
  const int64_t at_once = together ? rows.count : 1;
  // The first row that ends behind the run's beginning.
  const int64_t passed = (run.first - block.first_of(0)) / block.width;
  int64_t row = together ? rows.first : std::clamp(passed - 1, rows.first, rows.end());
  for (; row < rows.end() && block.first_of(row) < run.end(); row += at_once) {
    const Run here{block.first_of(row), at_once * block.cols.count}, both = overlap_of(here, run);
    if (both.count > 0) f(row * block.cols.count + both.first - here.first, both.first - run.first, both.count);
  }
}

void OuterState::put(What what, int64_t fragment, Run run, std::span<float> to) const {
  std::fill(to.begin(), to.end(), -0.0f);
  for (const Block& block : blocks_) {
    if (block.at.fragment != fragment) continue;
    if (what == What::sent) {
      put_masters(block, run, to);
      continue;
    }
    const std::vector<float>& from = what == What::outer ? block.outer : block.momentum;
    if (from.empty()) continue;
    for_each_run(block, block.spoken, run, [&](int64_t element, int64_t at, int64_t count) {
      std::copy_n(from.data() + element, count, to.data() + at);
    });
  }
}

void OuterState::put_masters(const Block& block, Run run, std::span<float> to) const {
  const int64_t cols = block.cols.count;
  for_each_run(block, block.spoken, run, [&](int64_t element, int64_t at, int64_t count) {
    const int64_t first = element / cols, end = (element + count + cols - 1) / cols;
    read_parts(memory_, block.master.slice_rows(first, end - first), [&](const Tensor& part, int64_t first_row) {
      const Run here = overlap_of({(first + first_row) * cols, part.rows() * cols}, {element, count});
      for (int64_t e = here.first; e < here.end(); ++e) {
        const int64_t row = e / cols - first - first_row;
        const float master = part.as<float>()[row * part.row_stride + e % cols];
        to[size_t(at + e - element)] = spec_.wire == OuterSpec::Wire::f32 ? master : block.outer[size_t(e)] - master;
      }
    });
  });
}

void OuterState::keep(What what, int64_t fragment, Run run, std::span<const float> from) {
  for (Block& block : blocks_) {
    if (block.at.fragment != fragment) continue;
    std::vector<float>& to = what == What::momentum ? block.came_momentum : block.came;
    to.resize(block.outer.size());
    for_each_run(block, {0, block.rows.count}, run, [&](int64_t element, int64_t at, int64_t count) {
      std::copy_n(from.data() + at, count, to.data() + element);
    });
  }
}

void OuterState::keep_sent(int64_t fragment) {
  for (Block& block : blocks_) {
    if (block.at.fragment != fragment) continue;
    block.sent.resize(block.outer.size());
    read_parts(memory_, block.master, [&](const Tensor& part, int64_t first_row) {
      for (int64_t r = 0; r < part.rows(); ++r)
        for (int64_t c = 0; c < block.cols.count; ++c) {
          const auto element = size_t((first_row + r) * block.cols.count + c);
          const float master = part.as<float>()[r * part.row_stride + c];
          block.sent[element] = spec_.wire == OuterSpec::Wire::f32
                                    ? master
                                    : block.outer[element] - float(bf16(block.outer[element] - master));
        }
    });
  }
}

// `value_of(element, master)` is what a master becomes; each is asked for once.
template <class F>
void OuterState::write_masters(Block& block, const F& value_of) {
  const int64_t cols = block.cols.count;
  std::vector<float> now(block.outer.size());
  read_parts(memory_, block.master, [&](const Tensor& part, int64_t first_row) {
    for (int64_t r = 0; r < part.rows(); ++r)
      for (int64_t c = 0; c < cols; ++c) {
        const int64_t element = (first_row + r) * cols + c;
        now[size_t(element)] = value_of(element, part.as<float>()[r * part.row_stride + c]);
      }
  });
  write_parts(memory_, block.master, [&](const Tensor& part, int64_t first_row) {
    for (int64_t r = 0; r < part.rows(); ++r)
      std::copy_n(now.data() + (first_row + r) * cols, cols, part.as<float>() + r * part.row_stride);
  });
}

void OuterState::step(int64_t fragment) {
  for (Block& block : blocks_) {
    if (block.at.fragment != fragment) continue;
    for (size_t e = 0; e < block.outer.size(); ++e) {
      float none = 0;
      outer_step(spec_, block.came[e], block.outer[e], has_momentum() ? block.momentum[e] : none);
    }
    write_masters(block, [&](int64_t element, float) { return block.outer[size_t(element)]; });
    block.came = {};
    block.sent = {};
  }
}

void OuterState::take(int64_t fragment, Moved moved) {
  for (Block& block : blocks_) {
    if (block.at.fragment != fragment) continue;
    write_masters(block, [&](int64_t element, float master) {
      const float now = block.came[size_t(element)];
      if (moved == Moved::goes || (moved == Moved::since_sent && block.sent.empty())) return now;
      const float before = (moved == Moved::stays ? block.outer : block.sent)[size_t(element)];
      return now == before ? master : float(double(now) + (double(master) - double(before)));
    });
    block.outer = std::move(block.came);
    block.came = {};
    block.came_momentum.resize(block.momentum.size());
    block.momentum = std::move(block.came_momentum);
    block.came_momentum = {};
    // One that comes once more, because the connection broke behind it, keeps what it has kept.
    block.sent = moved == Moved::since_sent && !block.sent.empty() ? block.outer : std::vector<float>();
  }
}

// As if fragments lay one behind the other, and the momentum behind them.
uint64_t OuterState::sum() const {
  std::vector<int64_t> begins;
  int64_t all = 0;
  for (const int64_t size : layout_.sizes()) begins.push_back(std::exchange(all, all + size));
  uint64_t sum = 0;
  for (const Block& block : blocks_) {
    const int64_t begin = begins[size_t(block.at.fragment)];
    for_each_run(block, block.spoken, {0, layout_.sizes()[size_t(block.at.fragment)]},
                 [&](int64_t element, int64_t at, int64_t count) {
                   const auto add = [&](const std::vector<float>& of, int64_t behind) {
                     if (!of.empty())
                       sum += word_sum(std::as_bytes(std::span(of).subspan(size_t(element), size_t(count))),
                                       begin + at + behind);
                   };
                   add(block.outer, 0);
                   add(block.momentum, all);
                 });
  }
  return sum;
}

SafetensorsLayout OuterState::file_layout(const OuterAge& age) const {
  std::vector<TensorInFile> tensors;
  for (const ParamSpec& p : layout_.weights())
    for (const char* entry : {kOuterEntry, kMomentumEntry}) {
      if (entry == kMomentumEntry && !has_momentum()) continue;
      TensorInFile t{p.name + entry, FileDType::f32, {}};
      for (int d = 0; d < p.shape.rank(); ++d) t.shape.push_back(p.shape[d]);
      tensors.push_back(std::move(t));
    }
  return SafetensorsLayout(kOuterFile, std::move(tensors),
                           {{"format", "weft-outer"},
                            {"rounds", std::to_string(age.rounds)},
                            {"step", std::to_string(age.step)},
                            {"since", std::to_string(age.since)}});
}

void OuterState::write(SharedWriter& writer) const {
  for (const Block& block : blocks_) {
    const std::string& name = layout_.weights()[size_t(block.weight)].name;
    const auto write = [&](const char* entry, const std::vector<float>& from) {
      if (from.empty()) return;
      for_each_run(block, block.spoken, {0, layout_.sizes()[size_t(block.at.fragment)]},
                   [&](int64_t element, int64_t at, int64_t count) {
                     writer.write(name + entry, (at - block.at.first) * int64_t(sizeof(float)),
                                  std::as_bytes(std::span(from).subspan(size_t(element), size_t(count))));
                   });
    };
    write(kOuterEntry, block.outer);
    write(kMomentumEntry, block.momentum);
  }
}

OuterAge OuterState::read(const std::filesystem::path& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const OuterAge age = age_in(file);
  const SafetensorsLayout expected = file_layout(age);
  for (const TensorInFile& t : expected.files()[0].tensors) {
    const SafetensorsEntry* entry = file.find(t.name);
    if (entry == nullptr || entry->shape != t.shape || entry->dtype != t.dtype)
      throw FileError(
          fmt::format("{}: tensor {} is missing, or of another shape or type: the checkpoint is of another "
                      "model, or of islands with another outer_momentum",
                      path.string(), t.name));
  }
  for (Block& block : blocks_) {
    const std::string& name = layout_.weights()[size_t(block.weight)].name;
    const auto read = [&](const char* entry, std::vector<float>& to) {
      if (to.empty()) return;
      const std::span<const std::byte> bytes = file.bytes(*file.find(name + entry));
      for_each_run(block, {0, block.rows.count}, {0, layout_.sizes()[size_t(block.at.fragment)]},
                   [&](int64_t element, int64_t at, int64_t count) {
                     const auto from =
                         bytes.subspan(size_t(at - block.at.first) * sizeof(float), size_t(count) * sizeof(float));
                     std::copy(from.begin(), from.end(), reinterpret_cast<std::byte*>(to.data() + element));
                   });
    };
    read(kOuterEntry, block.outer);
    read(kMomentumEntry, block.momentum);
  }
  file.check_whole();
  return age;
}

int64_t OuterState::bytes() const {
  int64_t elements = 0;
  for (const Block& block : blocks_) elements += int64_t(block.outer.size() + block.momentum.size());
  return elements * int64_t(sizeof(float));
}

}  // namespace weft
