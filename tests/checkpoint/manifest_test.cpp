// Hashes of checkpoints: whatever changes in a file is found, and named.
#include "weft/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>

#include "support.h"
#include "weft/base/hashing.h"
#include "weft/base/rng.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/checkpoint/shared_writer.h"
#include "weft/checkpoint/word_sum.h"
#include "weft/comm/local_group.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::slurp;
using testing::spill;
using testing::TempDir;

std::vector<std::byte> some_bytes(size_t n, uint64_t seed = 5) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = std::byte(random_bits64(seed, i));
  return bytes;
}

TEST(WordSum, IsWhatTheDocumentSays) {
  const std::vector<std::byte> zeros(12, std::byte{0});
  // python3: mix(0) + mix(0x9e3779b97f4a7c15) + mix(2 * 0x9e3779b97f4a7c15): the first outputs of splitmix64
  EXPECT_EQ(word_sum(zeros, 0), 0ull + 0xe220a8397b1dcdafull + 0x6e789e6aa1b965f4ull);
  const std::vector<std::byte> three{std::byte{1}, std::byte{2}, std::byte{3}};
  const std::vector<std::byte> filled{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{0}};
  EXPECT_EQ(word_sum(three, 7), word_sum(filled, 7));
}

TEST(WordSum, AddsUpFromAnyParts) {
  const std::vector<std::byte> bytes = some_bytes(4 * 1000 + 3);
  const uint64_t whole = word_sum(bytes, 0);
  for (size_t cut = 0; cut <= 1000; ++cut) {
    const auto all = std::span<const std::byte>(bytes);
    ASSERT_EQ(word_sum(all.first(4 * cut), 0) + word_sum(all.subspan(4 * cut), int64_t(cut)), whole) << cut;
  }
}

TEST(WordSum, AnyBitAndAnyExchangeChangesIt) {
  std::vector<std::byte> bytes = some_bytes(256);
  const uint64_t whole = word_sum(bytes, 3);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    ASSERT_NE(word_sum(bytes, 3), whole) << bit;
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
  }
  for (size_t a = 0; a < 64; ++a)
    for (size_t b = 0; b < a; ++b) {
      std::vector<std::byte> other = bytes;
      std::swap_ranges(other.begin() + long(4 * a), other.begin() + long(4 * a + 4), other.begin() + long(4 * b));
      ASSERT_NE(word_sum(other, 3), whole);
    }
  EXPECT_NE(word_sum(bytes, 4), whole);
}

TEST(WordSum, OfBytesAddsUpFromAnyBytes) {
  const std::vector<std::byte> bytes = some_bytes(1003), one{std::byte{7}};
  const uint64_t whole = byte_sum(bytes, 0);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const auto all = std::span<const std::byte>(bytes);
    ASSERT_EQ(byte_sum(all.first(cut), 0) + byte_sum(all.subspan(cut), int64_t(cut)), whole) << cut;
  }
  EXPECT_EQ(byte_sum(one, 5), word_sum(one, 5));
  EXPECT_NE(byte_sum(bytes, 1), whole);
}

// A checkpoint of four tensors in two files, beside a config and a state.
class Saved {
 public:
  explicit Saved(fs::path folder, int64_t step = 20, uint64_t seed = 5) : folder_(std::move(folder)) {
    fs::create_directories(folder_ / "weft");
    Manifest manifest{.step = step, .files = {}};
    add(manifest, "",
        SafetensorsLayout("model.safetensors", {{"a", FileDType::f32, {5}}, {"b", FileDType::f64, {2, 3}}}, {}), seed);
    add(manifest, "weft/",
        SafetensorsLayout("optimizer.safetensors", {{"a.m", FileDType::f32, {5}}, {"a.v.codes", FileDType::u8, {7}}},
                          {}),
        seed + 10);
    spill(folder_ / "config.json", "{\"x\": 1}\n");
    spill(folder_ / "weft/state.json", "{\"format\": 2}\n");
    manifest.add_others(folder_);
    spill(folder_ / kManifestFile, to_text(manifest));
  }
  fs::path operator/(const std::string& name) const { return folder_ / name; }
  const fs::path& path() const { return folder_; }

 private:
  void add(Manifest& manifest, const std::string& folder, const SafetensorsLayout& layout, uint64_t seed) const {
    create_files(folder_ / folder, layout);
    SharedWriter writer(folder_ / folder, layout);
    for (const TensorInFile& t : layout.files()[0].tensors)
      writer.write(t.name, 0, some_bytes(size_t(t.num_bytes()), seed++));
    writer.sync();
    manifest.add(folder, layout, writer.sums());
  }
  fs::path folder_;
};

std::string damage_of(const fs::path& checkpoint, CheckpointPart part = CheckpointPart::all) {
  return check_checkpoint(checkpoint, part, *single_mesh().world, 1).damage;
}

TEST(Manifest, IsReadAsItWasWrittenAndAnyOtherByteIsFound) {
  TempDir dir;
  const Saved saved(dir / "c");
  const std::string text = slurp(saved / kManifestFile);
  const Manifest manifest = parse_manifest(text, "m");
  EXPECT_EQ(to_text(manifest), text);
  EXPECT_EQ(manifest.step, 20);
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string other = text;
    other[bit / 8] = char(other[bit / 8] ^ (1 << bit % 8));
    ASSERT_THROW(parse_manifest(other, "m"), DamageError) << bit;
  }
  for (size_t size = 0; size < text.size(); ++size)
    ASSERT_THROW(parse_manifest(text.substr(0, size), "m"), DamageError);
  EXPECT_THROW(parse_manifest(text + "\n", "m"), DamageError);
}

TEST(Manifest, HashesAreThoseOfXxhsum) {  // printf 'abc' | xxhsum -H2
  EXPECT_EQ(to_hex(hash128("abc")), "06b05ab6733a618578af5f94892f3950");
}

// Files of a hash that fits, of somebody who means no good.
TEST(Manifest, PathsOutOfTheFolderAndSizesThatDoNotFitAreRefused) {
  const auto with = [](Manifest m) { return error_of([&] { parse_manifest(to_text(m), "m"); }); };
  EXPECT_EQ(with({.step = 1, .files = {{"a..b", {}}}}), "");
  for (const char* name : {"../x", "/etc/passwd", "a/../../x", ""})
    EXPECT_NE(with({.step = 1, .files = {{name, {}}}}).find("below the checkpoint"), std::string::npos) << name;
  const auto sized = [](int64_t all, int64_t head, std::vector<int64_t> tensors) {
    Manifest::File file{.bytes = all, .head_bytes = head, .head = "", .tensors = {}};
    for (const int64_t bytes : tensors) file.tensors.push_back({"t", bytes, 0});
    return Manifest{.step = 1, .files = {{"f", file}}};
  };
  EXPECT_EQ(with(sized(10, 2, {8})), "");
  EXPECT_NE(with(sized(10, 2, {4})), "");
  EXPECT_NE(with(sized(10, 2, {8, 8})), "");
  EXPECT_NE(with(sized(10, 12, {4})), "");
}

TEST(CheckpointCheck, WhatWasSavedIsWhole) {
  TempDir dir;
  const Saved saved(dir / "c");
  EXPECT_EQ(damage_of(saved.path()), "");
  EXPECT_EQ(check_checkpoint(saved.path(), CheckpointPart::all, *single_mesh().world, 2).step, 20);
}

TEST(CheckpointCheck, AnyBitOfAnyFileIsFoundAndItsFileAndTensorNamed) {
  TempDir dir;
  const Saved saved(dir / "c");
  for (const auto& entry : fs::recursive_directory_iterator(saved.path())) {
    if (!entry.is_regular_file()) continue;
    const std::string text = slurp(entry.path());
    for (size_t at = 0; at < text.size(); ++at) {
      std::string other = text;
      other[at] = char(other[at] ^ (1 << at % 8));
      spill(entry.path(), other);
      ASSERT_NE(damage_of(saved.path()).find(entry.path().string()), std::string::npos) << entry.path() << " " << at;
    }
    spill(entry.path(), text);
  }
  std::string model = slurp(saved / "model.safetensors");
  model.back() = char(model.back() ^ 1);  // tensors stand by alignment: a is the last
  spill(saved / "model.safetensors", model);
  EXPECT_NE(damage_of(saved.path()).find("tensor \"a\" is not what was saved"), std::string::npos);
}

// As hosts do whose views of a network file system are not of the same time.
TEST(CheckpointCheck, RanksThatSeeOtherManifestsEndWithTheSameError) {
  TempDir dir;
  const Saved one(dir / "one"), another(dir / "another", 20, 7), none(dir / "none");
  fs::remove(none / kManifestFile);
  spill(none / "weft/state.json", "{\"format\": 1}\n");
  fs::copy_file(one / "weft/optimizer.safetensors", dir / "none/weft/optimizer.safetensors",
                fs::copy_options::overwrite_existing);
  for (const Saved* other : {&another, &none}) {
    std::vector<std::string> said(3);
    run_local(3, [&](Communicator& ranks) {
      const auto r = size_t(ranks.rank());
      const fs::path& seen = r == 1 ? other->path() : one.path();
      said[r] = error_of([&] { check_checkpoint(seen, CheckpointPart::all, ranks, 1); });
    });
    for (const std::string& text : said)
      EXPECT_NE(text.find("rank 1 does not see the file"), std::string::npos) << text;
  }
}

TEST(CheckpointCheck, TruncatedMissingSwappedZeroedMixedAndAddedFilesAreFound) {
  TempDir dir;
  const Saved older(dir / "older", 10, 99);
  const auto expect_found = [&](const std::string& what, const std::string& says, const auto& damage) {
    fs::remove_all(dir / "c");
    const Saved saved(dir / "c");
    damage(saved);
    EXPECT_NE(damage_of(saved.path()).find(says), std::string::npos) << what << ": " << damage_of(saved.path());
  };
  for (const char* name : {"config.json", "model.safetensors", "weft/optimizer.safetensors", "weft/state.json"}) {
    expect_found(name, std::string(name) + ": has", [&](const Saved& s) { fs::resize_file(s / name, 5); });
    expect_found(name, std::string(name) + ": is missing", [&](const Saved& s) { fs::remove(s / name); });
  }
  expect_found("a hole", "optimizer.safetensors: tensor \"a.m\"", [](const Saved& s) {
    const auto size = fs::file_size(s / "weft/optimizer.safetensors");
    fs::resize_file(s / "weft/optimizer.safetensors", size - 20);
    fs::resize_file(s / "weft/optimizer.safetensors", size);
  });
  for (const char* name : {"model.safetensors", "weft/optimizer.safetensors", "weft/manifest.json"})
    expect_found("another step's", "not what was saved",
                 [&](const Saved& s) { fs::copy_file(older / name, s / name, fs::copy_options::overwrite_existing); });
  expect_found("swapped", "model.safetensors: has", [](const Saved& s) {
    fs::rename(s / "model.safetensors", s / "x");
    fs::rename(s / "weft/optimizer.safetensors", s / "model.safetensors");
    fs::rename(s / "x", s / "weft/optimizer.safetensors");
  });
  expect_found("no manifest", "manifest.json: is missing", [](const Saved& s) { fs::remove(s / kManifestFile); });
  expect_found("other weights", "other.safetensors: was not saved with this",
               [](const Saved& s) { spill(s / "other.safetensors", "x"); });
  expect_found("a folder", "config.json: is not a regular file", [](const Saved& s) {
    fs::remove(s / "config.json");
    fs::create_directory(s / "config.json");
  });
}

TEST(CheckpointCheck, OfAModelTheOptimizersStateIsNotRead) {
  TempDir dir;
  const Saved saved(dir / "c");
  fs::remove(saved / "weft/optimizer.safetensors");
  EXPECT_EQ(damage_of(saved.path(), CheckpointPart::model), "");
  EXPECT_NE(damage_of(saved.path()), "");
}

TEST(CheckpointCheck, FilesThatSomebodyHasAddedAreNamedAndHarmless) {
  TempDir dir;
  const Saved saved(dir / "c");
  spill(saved / "README.md", "mine");
  EXPECT_EQ(damage_of(saved.path()), "");
  EXPECT_EQ(CheckpointCheck(saved.path(), CheckpointPart::all).strangers(), std::vector<std::string>{"README.md"});
}

TEST(CheckpointCheck, SharesAddUpWhateverTheirNumber) {
  TempDir dir;
  const SafetensorsLayout layout("model.safetensors", {{"a", FileDType::f32, {700'001}}, {"b", FileDType::f32, {3}}},
                                 {});
  create_files(dir.path(), layout);
  fs::create_directories(dir / "weft");
  SharedWriter writer(dir.path(), layout);
  for (const TensorInFile& t : layout.files()[0].tensors) writer.write(t.name, 0, some_bytes(size_t(t.num_bytes())));
  writer.sync();
  Manifest manifest{.step = 1, .files = {}};
  manifest.add("", layout, writer.sums());
  spill(dir / kManifestFile, to_text(manifest));
  const CheckpointCheck check(dir.path(), CheckpointPart::all);
  for (const int shares : {1, 2, 3, 7, 50}) {
    std::vector<uint64_t> sums(2, 0);
    for (int r = 0; r < shares; ++r) {
      const std::vector<uint64_t> mine = check.sums_of_share(r, shares, 2);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += mine[i];
    }
    EXPECT_EQ(error_of([&] { check.judge(sums); }), "") << shares;
  }
}

TEST(CheckpointCheck, WhatCannotBeLookedAtNowIsNoDamage) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  TempDir dir;
  const Saved saved(dir / "c");
  fs::permissions(saved / "config.json", fs::perms::none);
  EXPECT_NE(error_of([&] { damage_of(saved.path()); }).find("cannot be read"), std::string::npos);
}

TEST(CheckpointCheck, ANamedOneThatIsDamagedIsRefusedWithWhatToDo) {
  TempDir dir;
  const Saved saved(dir / "c");
  EXPECT_EQ(require_whole(saved.path(), CheckpointPart::all, *single_mesh().world, 1), "");
  require_saved(saved.path(), "config.json");
  spill(saved / "config.json", "{\"x\": 2}\n");
  const std::string refused =
      error_of([&] { require_whole(saved.path(), CheckpointPart::all, *single_mesh().world, 1); });
  EXPECT_NE(refused.find("config.json: it is not what was saved"), std::string::npos) << refused;
  EXPECT_NE(refused.find("copy the folder without weft/"), std::string::npos) << refused;
  EXPECT_EQ(error_of([&] { require_saved(saved.path(), "config.json"); }), refused);
  fs::remove_all(saved / "weft");  // as it says
  EXPECT_EQ(require_whole(saved.path(), CheckpointPart::all, *single_mesh().world, 1), "");
}

}  // namespace
}  // namespace weft
