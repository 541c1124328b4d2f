// Local copies of a small state, made without a run.
#pragma once
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "support.h"
#include "weft/checkpoint/local_share.h"

namespace weft::testing {

// Two tensors, w [4, 6] and b [6]. Two ranks write them: each half of the columns of w, and b the first.
class SmallCopy {
 public:
  SmallCopy(int64_t step, std::string recipe = "# a recipe\n") : step_(step), recipe_(std::move(recipe)) {
    for (int i = 0; i < 24; ++i) w_.push_back(float(100 * step + i));
    for (int i = 0; i < 6; ++i) b_.push_back(float(step) / float(i + 1));
  }

  // LIFE/step-N.rank-R-of-2. Returns it.
  std::filesystem::path write_share(const std::filesystem::path& life, int rank) const {
    const LocalShareName name{.step = step_, .rank = rank, .ranks = 2};
    const std::filesystem::path folder = life / to_string(name);
    std::filesystem::create_directories(folder);
    std::vector<std::byte> room(512);
    SharedWriter writer("", layout_, room);
    give(writer, rank);
    if (rank == 0) write_files(folder / "files");
    write_local_share(folder, {.name = name, .pieces = pieces_of("", layout_, writer.runs())},
                      std::span(room).first(size_t(writer.held())));
    return folder;
  }
  void write_shares(const std::filesystem::path& life) const {
    for (const int rank : {0, 1}) write_share(life, rank);
  }
  // The checkpoint that a save would have written.
  void write_checkpoint(const std::filesystem::path& folder) const {
    write_files(folder);
    std::filesystem::remove(folder / "model.safetensors");
    create_files(folder, layout_);
    SharedWriter writer(folder, layout_);
    for (const int rank : {0, 1}) give(writer, rank);
    writer.sync();
  }
  const SafetensorsLayout& layout() const { return layout_; }

 private:
  template <class Range>
  static std::span<const std::byte> bytes_in(const Range& numbers, size_t first, size_t count) {
    return std::as_bytes(std::span(numbers).subspan(first, count));
  }
  void give(SharedWriter& writer, int rank) const {
    const auto column = size_t(3 * rank);
    for (size_t row = 0; row < 4; ++row)
      writer.write("w", int64_t(4 * (6 * row + column)), bytes_in(w_, 6 * row + column, 3));
    if (rank == 0) writer.write("b", 0, bytes_in(b_, 0, 6));
  }
  void write_files(const std::filesystem::path& files) const {
    std::filesystem::create_directories(files / "weft");
    create_heads(files, layout_);
    spill(files / "config.json", "{}");
    spill(files / "weft/state.json", "{\"format\": 2}");
    spill(files / "weft/recipe.toml", recipe_);
    std::vector<std::byte> room(512);
    SharedWriter all("", layout_, room);
    for (const int rank : {0, 1}) give(all, rank);
    Manifest manifest{.step = step_, .files = {}};
    manifest.add("", layout_, all.sums());
    manifest.add_others(files);
    spill(files / kManifestFile, to_text(manifest));
  }

  const int64_t step_;
  const std::string recipe_;
  const SafetensorsLayout layout_{
      "model.safetensors", {{"w", FileDType::f32, {4, 6}}, {"b", FileDType::f32, {6}}}, model_metadata()};
  std::vector<float> w_, b_;
};

// Flips one bit in the middle of a file.
inline void flip_a_bit_of(const std::filesystem::path& file) {
  std::string text = slurp(file);
  text.at(text.size() / 2) ^= 1;
  spill(file, text);
}

}  // namespace weft::testing
