// The files that a pipeline reads: which they are, and which are refused.
#include "weft/pipeline/input_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "apps/program.h"
#include "pipeline/dirty_case.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using testing::bytes_of_folder;
using testing::config_of;
using testing::config_over;
using testing::differing;
using testing::error_of;
using testing::Harness;
using testing::slurp;
using testing::small_toml;
using testing::spill;
using testing::TempDir;

// What a run of these files into this folder says; empty: it went through.
std::string said_by_run(const fs::path& out, const std::string& files, const std::string& more = "") {
  Harness harness;
  return testing::error_of<Error>([&] { harness.run(config_over(out, files, more)); });
}
std::string list_of(const fs::path& path) { return "[\"" + path.string() + "\"]"; }

TEST(InputFiles, ARunDoesNotReadTheFolderThatItWritesTo) {
  const TempDir dir;
  fs::create_directories(dir / "in/read");
  spill(dir / "in/read/00000.jsonl", "{\"text\": \"years of work\"}\n");
  fs::create_symlink(dir / "in", dir / "link");
  spill(dir / "inside.txt", "text");
  EXPECT_SAYS(said_by_run(dir / "in", list_of(dir / "in")), "is, or lies in, the input");
  EXPECT_SAYS(said_by_run(dir / "in/out", list_of(dir / "in")), "is, or lies in, the input");
  EXPECT_SAYS(said_by_run(dir / "in/out", list_of(dir / "l*")), "is, or lies in, the input");
  EXPECT_SAYS(said_by_run(dir / "in/", list_of(dir / "link/read")), "holds the input");
  EXPECT_SAYS(said_by_run(dir / "in", list_of(dir / "in/read/*.jsonl")), "holds the input");
  EXPECT_SAYS(said_by_run(dir / "in", list_of(dir / "inside.txt"),
                          "[decontaminate]\nngram = 1\nfiles = " + list_of(dir / "in/read") + "\n"),
              "holds the input");
  EXPECT_EQ(slurp(dir / "in/read/00000.jsonl"), "{\"text\": \"years of work\"}\n");
  EXPECT_EQ(said_by_run(dir / "in-too", list_of(dir / "in")), "");
}

TEST(InputFiles, ANamedPipeIsRefusedAndNotWaitedFor) {
  const TempDir dir;
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_SAYS(said_by_run(dir / "out", list_of(dir / "pipe")), "pipe: cannot be read: is not a regular file");
  fs::create_directories(dir / "in");
  for (const char* name : {"in/pipe", "in/tube"}) ASSERT_EQ(mkfifo((dir / name).c_str(), 0600), 0);
  spill(dir / "in/a.txt", "a");
  const std::string said = said_by_run(dir / "out", list_of(dir / "in"));
  EXPECT_SAYS(said, "pipe: cannot be read: is not a regular file\n");
  EXPECT_SAYS(said, "tube: cannot be read: is not a regular file");
}

TEST(InputFiles, LinksInAFolderAreFollowedAndBadOnesNamed) {
  const TempDir dir;
  fs::create_directories(dir / "in/sub");
  fs::create_directories(dir / "elsewhere");
  spill(dir / "in/sub/a.txt", "a");
  spill(dir / "elsewhere/b.txt", "b");
  fs::create_symlink(dir / "elsewhere", dir / "in/linked");
  EXPECT_EQ(expand_names({(dir / "in").string()}),
            (std::vector{(dir / "in/linked/b.txt").string(), (dir / "in/sub/a.txt").string()}));
}

// What cannot be opened, by its name's end: why. `texts`: of the others.
std::map<std::string, std::string> failures_of_run(const fs::path& out, const std::string& files,
                                                   std::vector<std::string>& texts) {
  EXPECT_EQ(said_by_run(out, files), "");
  texts = testing::texts_of(out / "read");
  std::map<std::string, std::string> found;
  const StageResult read = open_stage(out / "read");
  for (const auto& input : read.manifest.at("inputs"))
    if (input.contains("failure"))
      found[fs::path(input.at("file").get<std::string>()).filename()] = input.at("failure");
  EXPECT_EQ(read.manifest.at("broken"), found.size());
  return found;
}

TEST(InputFiles, WhatCannotBeOpenedIsPutAsideByName) {
  const TempDir dir;
  fs::create_directories(dir / "in/sub");
  spill(dir / "in/sub/a.txt", "a");
  fs::create_symlink(dir / "in", dir / "in/sub/circle");
  fs::create_symlink(dir / "gone", dir / "in/sub/lost.txt");
  fs::create_symlink(dir / "in/loop.txt", dir / "in/loop.txt");
  spill(dir / "in/caf\xe9.txt", "no");
  std::vector<std::string> texts;
  for (const std::string& files : {list_of(dir / "in"), list_of(dir / "in/**"), list_of(dir / "in/**/*")}) {
    const TempDir out;
    auto failures = failures_of_run(out / "out", files, texts);
    EXPECT_EQ(texts, std::vector<std::string>{"a"});
    EXPECT_EQ(failures.size(), 4u) << files;
    EXPECT_SAYS(failures["circle"], "is a link to a folder that it is in");
    EXPECT_EQ(failures["lost.txt"], "is a link to nothing");
    EXPECT_SAYS(failures["loop.txt"], "is a link to itself");
    EXPECT_SAYS(failures["caf\\xe9.txt"], "has a name that is not UTF-8");
  }
  auto failures = failures_of_run(
      dir / "named", "[\"" + (dir / "in/sub/a.txt").string() + "\", \"" + (dir / "in/loop.txt").string() + "\"]",
      texts);
  EXPECT_EQ(failures.size(), 1u);
}

TEST(InputFiles, ASourceOfWhichNothingCanBeOpenedIsRefused) {
  const TempDir dir;
  fs::create_directories(dir / "in");
  fs::create_symlink(dir / "gone", dir / "in/lost.txt");
  fs::create_symlink(dir / "gone", dir / "in/also.txt");
  const std::string said = said_by_run(dir / "out", list_of(dir / "in"));
  EXPECT_SAYS(said, "also.txt: is a link to nothing; none of the 2 files of source \"s\" can be read");
  EXPECT_SAYS(said_by_run(dir / "out", list_of(dir / "in/lost.txt")), "lost.txt: is a link to nothing");
}

TEST(InputFiles, WhatMayNotBeOpenedIsPutAsideByName) {
  const TempDir dir;
  fs::create_directories(dir / "in/closed");
  spill(dir / "in/a.txt", "a");
  spill(dir / "in/secret.txt", "s");
  fs::permissions(dir / "in/secret.txt", fs::perms::none);
  fs::permissions(dir / "in/closed", fs::perms::none);
  if (eaccess((dir / "in/secret.txt").c_str(), R_OK) == 0) GTEST_SKIP() << "this user may read everything";
  std::vector<std::string> texts;
  auto failures = failures_of_run(dir / "out", list_of(dir / "in"), texts);
  fs::permissions(dir / "in/closed", fs::perms::owner_all);
  EXPECT_EQ(texts, std::vector<std::string>{"a"});
  EXPECT_EQ(failures["secret.txt"], "cannot be read: Permission denied");
  EXPECT_EQ(failures["closed"], "cannot be read: Permission denied");
}

// A hole in what training data are compared with would go unseen.
TEST(InputFiles, AnEvaluationFileThatCannotBeOpenedIsRefused) {
  const TempDir dir;
  fs::create_directories(dir / "eval");
  spill(dir / "a.txt", "a");
  spill(dir / "eval/e.txt", "one two three four five six seven eight");
  fs::create_symlink(dir / "gone", dir / "eval/lost.txt");
  EXPECT_SAYS(
      said_by_run(dir / "out", list_of(dir / "a.txt"), "[decontaminate]\nfiles = " + list_of(dir / "eval") + "\n"),
      "lost.txt: is a link to nothing");
}

TEST(InputFiles, APatternThatMatchesNothingIsCalledOne) {
  const TempDir dir;
  const auto error = [&](const char* name) {
    return testing::error_of([&] { expand_names({(dir / name).string()}); });
  };
  EXPECT_EQ(error("*.zst"), (dir / "*.zst").string() + ": no file matches this pattern");
  EXPECT_EQ(error("a.zst"), (dir / "a.zst").string() + ": there is no such file, and no file in it");
}

TEST(InputFiles, TwoStarsAreFoldersOfAnyDepthOrNone) {
  const TempDir dir;
  std::vector<std::string> all;
  for (const std::string name : {"a.jsonl", "d1/b.jsonl", "d1/d2/[x]/c.jsonl", "e.jsonl/f.jsonl"}) {
    all.push_back((dir / "gl" / name).string());
    fs::create_directories((dir / "gl" / name).parent_path());
    spill(all.back(), "{}");
  }
  spill(dir / "gl/d1/d2/g.txt", "g");
  const auto found = [&](const std::string& pattern) { return expand_names({(dir / pattern).string()}); };
  EXPECT_EQ(found("gl/**/*.jsonl"), all);  // each once, though one folder's name matches too
  EXPECT_EQ(found("g*/**/**/*.jsonl"), all);
  EXPECT_EQ(found("gl/**/d2/**/*.jsonl"), std::vector{all[2]});
  EXPECT_EQ(found("gl/**/g.txt"), std::vector{(dir / "gl/d1/d2/g.txt").string()});
  EXPECT_EQ(found("gl/**"), found("gl"));
  EXPECT_SAYS(testing::error_of([&] { found("gl/**/*.csv"); }), "no file matches this pattern");
  EXPECT_SAYS(testing::error_of([&] { found("gl/**.jsonl"); }), "** stands for folders of any depth, between slashes");
}

TEST(InputFiles, BracesAreSaidNotToBeKnown) {
  const TempDir dir;
  spill(dir / "a.txt", "a");
  for (const char* pattern : {"{a,b}.txt", "{a,b}.*"})
    EXPECT_SAYS(testing::error_of([&] { expand_names({(dir / pattern).string()}); }), "braces are not known");
}

TEST(InputFiles, AFileIsReadOnce) {
  const TempDir dir;
  fs::create_directories(dir / "in");
  spill(dir / "in/a.txt", "a");
  const std::string folder = list_of(dir / "in"), file = list_of(dir / "in/../in/a.txt");
  EXPECT_SAYS(said_by_run(dir / "out", folder, "[[source]]\nname = \"b\"\nfiles = " + file + "\n"),
              "in/../in/a.txt are the same file");
  fs::create_symlink(dir / "in/a.txt", dir / "in/b.txt");
  EXPECT_SAYS(said_by_run(dir / "out", folder), "in/b.txt are the same file");
}

TEST(InputFiles, ALaterStageDoesWithoutTheInputs) {
  const TempDir dir;
  const PipelineConfig config = config_of(small_toml(dir, "[length]\nmin_words = 2\n"));
  Harness harness;
  harness.run(config, "read");
  fs::remove(dir / "in.jsonl");
  EXPECT_EQ(error_of([&] { harness.run(config, "filter"); }), "");
}

TEST(InputFiles, AnInputThatWasOnlyTouchedIsNoOther) {
  const TempDir dir;
  const PipelineConfig config = config_of(small_toml(dir, "[tokens]\n"));
  Harness harness;
  harness.run(config);
  auto good = bytes_of_folder(dir / "out");
  const fs::path in = dir / "in.jsonl";
  fs::last_write_time(in, fs::last_write_time(in) + std::chrono::hours(1));
  EXPECT_EQ(error_of([&] { harness.run(config); }), "");
  EXPECT_EQ(differing(bytes_of_folder(dir / "out"), good), (std::set<std::string>{"read/stage.json"}));  // its time
  good = bytes_of_folder(dir / "out");
  std::string bytes = slurp(in);
  bytes[10] = 'O';
  spill(in, bytes);
  fs::last_write_time(in, fs::last_write_time(in) + std::chrono::hours(2));
  const std::string error = error_of([&] { harness.run(config); });
  EXPECT_NE(error.find("is complete, and was made otherwise: inputs/0/mtime of \"" + in.string() + "\" was "),
            std::string::npos)
      << error;
  EXPECT_TRUE(bytes_of_folder(dir / "out") == good);
}

// The run that leads knew the input by its old time, and knows it by the new one from then on: also after it was
// interrupted, and for who joins it.
TEST(InputFiles, AnInputThatWasTouchedIsKnownByItsNewTime) {
  const TempDir dir;
  const std::string toml = small_toml(dir, "[length]\nmin_words = 2\n");
  Harness harness;
  harness.run(config_of(toml));
  const fs::path in = dir / "in.jsonl", shard = dir / "out/read/00000.jsonl";
  fs::last_write_time(in, fs::last_write_time(in) + std::chrono::hours(1));
  harness.again = true;
  harness.run(config_of(toml + "[read]\nmax_row_mb = 3\n"));
  for (const char* file : {"out/manifest.json", "out/read/manifest.json"}) fs::remove(dir / file);
  const auto made = fs::last_write_time(shard);
  harness.run(config_of(toml + "[read]\nmax_row_mb = 3\n"));
  EXPECT_EQ(fs::last_write_time(shard), made);
}

}  // namespace
}  // namespace weft
