#include "weft/checkpoint/local_share.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "local_shares.h"
#include "weft/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::flip_a_bit_of;
using testing::slurp;
using testing::SmallCopy;
using testing::spill;
using testing::TempDir;

// The checkpoint that the shares of a life make.
fs::path put_together(const TempDir& dir, const std::vector<fs::path>& shares) {
  const fs::path to = dir / "made";
  fs::remove_all(to);
  fs::create_directories(to);
  begin_checkpoint_of(shares[0], to);
  for (const fs::path& share : shares) add_share_to(share, to);
  return to;
}

TEST(LocalShare, ItsNameSaysStepRankAndRanks) {
  const LocalShareName name{.step = 120, .rank = 3, .ranks = 8};
  EXPECT_EQ(to_string(name), "step-120.rank-3-of-8");
  EXPECT_EQ(local_share_name_of("step-120.rank-3-of-8"), name);
  const LocalShareName of_neighbour{.step = 120, .rank = 3, .ranks = 8, .of_neighbour = true};
  EXPECT_EQ(to_string(of_neighbour), "step-120.rank-3-of-8.neighbour");
  EXPECT_EQ(local_share_name_of("step-120.rank-3-of-8.neighbour"), of_neighbour);
  for (const char* other :
       {"step-120.rank-3-of-8.tmp", "step-120.rank-3-of-8.neighbour.tmp", "step-120.rank-3-of-8.removing",
        "step-120.rank-8-of-8", "step-120", "step-0120.rank-3-of-8", "step-.rank-3-of-8", "step--1.rank-3-of-8", "",
        "step-99999999999999999999.rank-0-of-1", "step-1.rank-0-of-9999999999"})
    EXPECT_FALSE(local_share_name_of(other)) << other;
}

// Rows of a matrix that is cut by columns are one entry, however many there are.
TEST(LocalShare, ItsFoldersAreItsUsersAlone) {
  namespace fs = std::filesystem;
  const testing::TempDir dir;
  const fs::path local = dir / "a/local", life = local / "life";
  EXPECT_EQ(distrust_of(life), "");
  create_life(life);
  EXPECT_EQ(fs::status(local).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(life).permissions(), fs::perms::owner_all);
  create_life(life);
  fs::permissions(local, fs::perms::all | fs::perms::sticky_bit);
  EXPECT_EQ(distrust_of(life).empty(), ::geteuid() == 0) << "as /dev/shm is, where it is root's";
  fs::permissions(local, fs::perms::all);
  EXPECT_SAYS(testing::error_of<FileError>([&] { create_life(local / "next"); }), "may write to it");
  EXPECT_FALSE(fs::exists(local / "next"));
  fs::permissions(local, fs::perms::owner_all);
  fs::create_directory_symlink(dir.path(), local / "next");
  EXPECT_SAYS(testing::error_of<FileError>([&] { create_life(local / "next"); }), "is a link");
  fs::create_directory_symlink(local, dir / "linked");
  EXPECT_SAYS(testing::error_of<FileError>([&] { create_life(dir / "linked/life"); }), "linked: is a link");
}

TEST(LocalShare, RunsAtEvenDistancesAreOneEntry) {
  const SmallCopy copy(1);
  const int64_t b = copy.layout().find("b").offset, w = copy.layout().find("w").offset;
  const std::vector<SharedWriter::Held> runs{{0, w + 12, 12}, {0, w + 36, 12}, {0, w + 60, 12}, {0, w + 80, 4}};
  const std::vector<LocalPieces> pieces = pieces_of("weft/", copy.layout(), runs);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0], (LocalPieces{"weft/model.safetensors", "w", 12, 12, 3, 24}));
  EXPECT_EQ(pieces[1], (LocalPieces{"weft/model.safetensors", "w", 80, 4, 1, 0}));
  // A run from the end of one tensor into the next is a piece of each.
  const int64_t first = std::min(b, w), second = std::max(b, w);
  const std::vector<SharedWriter::Held> across{{0, second - 4, 8}};
  const std::vector<LocalPieces> both = pieces_of("", copy.layout(), across);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].tensor, first == b ? "b" : "w");
  EXPECT_EQ(both[0].bytes, 4);
  EXPECT_EQ(both[1].offset, 0);
  EXPECT_EQ(both[1].bytes, 4);
}

TEST(LocalShare, AllOfThemAreTheCheckpointThatASaveWouldHaveWritten) {
  const TempDir dir;
  const SmallCopy copy(7);
  copy.write_checkpoint(dir / "saved");
  const fs::path a = copy.write_share(dir / "host-a", 0), b = copy.write_share(dir / "host-b", 1);
  EXPECT_EQ(testing::bytes_of_folder(put_together(dir, {a, b})), testing::bytes_of_folder(dir / "saved"));
}

TEST(LocalShare, ManifestsAreReadAsTheyWereWritten) {
  const LocalShare share{.name = {.step = 4, .rank = 1, .ranks = 3},
                         .bytes = 40,
                         .hash = "00",
                         .pieces = {{"model.safetensors", "a \"b\"", 8, 12, 3, 24}, {"weft/x", "c", 0, 4, 1, 0}}};
  const LocalShare again = parse_local_share(to_text(share), "m");
  EXPECT_EQ(again.name, share.name);
  EXPECT_EQ(again.pieces, share.pieces);
  std::string text = to_text(share);
  text[text.find("\"offset\": 8") + 10] = '9';
  EXPECT_SAYS(error_of<DamageError>([&] { parse_local_share(text, "m"); }), "m: is not what was saved");
  LocalShare wrong = share;
  wrong.bytes = 44;
  EXPECT_SAYS(error_of<FileError>([&] { parse_local_share(to_text(wrong), "m"); }), "the bytes of all pieces");
  wrong.pieces[0].count = int64_t{1} << 62;
  EXPECT_SAYS(error_of<FileError>([&] { parse_local_share(to_text(wrong), "m"); }), "not more than the data has");
}

TEST(LocalShare, WhatIsNotAsItWasIsNamed) {
  const TempDir dir;
  const SmallCopy copy(7), older(5);
  const auto damage_of = [&](const std::function<void(const fs::path&)>& change) {
    const fs::path life = dir / "life";
    fs::remove_all(life);
    copy.write_shares(life);
    const fs::path b = life / "step-7.rank-1-of-2";
    change(b);
    return error_of<DamageError>([&] { put_together(dir, {life / "step-7.rank-0-of-2", b}); });
  };
  EXPECT_EQ(damage_of([](const fs::path&) {}), "");
  EXPECT_SAYS(damage_of([](const fs::path& b) { flip_a_bit_of(b / "data"); }),
              "rank-1-of-2/data: is not what was saved: its hash is not the one in its manifest");
  EXPECT_SAYS(damage_of([](const fs::path& b) { fs::resize_file(b / "data", 40); }), "data: ends after 40 of 48 bytes");
  EXPECT_SAYS(damage_of([](const fs::path& b) { spill(b / "data", slurp(b / "data") + "x"); }),
              "data: is not what was saved");
  EXPECT_SAYS(damage_of([](const fs::path& b) { flip_a_bit_of(b / "manifest.json"); }),
              "manifest.json: is not what was saved");
  EXPECT_SAYS(damage_of([](const fs::path& b) { fs::remove(b / "data"); }), "data: is missing");
  EXPECT_SAYS(damage_of([](const fs::path& b) { fs::remove(b / "manifest.json"); }), "manifest.json: is missing");
  EXPECT_SAYS(damage_of([&](const fs::path& b) {  // of another step, under this one's name
                fs::remove_all(b);
                fs::rename(older.write_share(dir / "older", 1), b);
              }),
              "was saved as step-5.rank-1-of-2: it is not what its name says");
}

// What has its own hash may still be none of this checkpoint's.
TEST(LocalShare, PiecesThatHaveNoPlaceAreRefused) {
  const TempDir dir;
  const SmallCopy copy(7);
  const fs::path a = copy.write_share(dir / "life", 0), b = dir / "life/step-7.rank-1-of-2";
  const auto damage_of = [&](LocalPieces pieces) {
    fs::create_directories(b);
    const std::string data(size_t(pieces.bytes * pieces.count), 'x');
    write_local_share(b, {.name = {.step = 7, .rank = 1, .ranks = 2}, .pieces = {std::move(pieces)}},
                      std::as_bytes(std::span(data)));
    return error_of<DamageError>([&] { put_together(dir, {a, b}); });
  };
  EXPECT_EQ(damage_of({"model.safetensors", "w", 84, 12, 1, 0}), "");
  for (const LocalPieces& pieces :
       {LocalPieces{"model.safetensors", "w", 88, 12, 1, 0}, LocalPieces{"model.safetensors", "w", 0, 12, 5, 24},
        LocalPieces{"model.safetensors", "v", 0, 12, 1, 0}, LocalPieces{"../model.safetensors", "w", 0, 12, 1, 0},
        LocalPieces{"config.json", "w", 0, 1, 1, 0}, LocalPieces{"model.safetensors", "w", 0, 12, 2, int64_t{1} << 62}})
    EXPECT_SAYS(damage_of(pieces), "has no place for: it is a share of another one");
}

}  // namespace
}  // namespace weft
