// The index of runs, and that it is never more than what the folders say.
#include "weft/history/run_index.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "history/run_folders.h"
#include "weft/base/error.h"
#include "weft/base/number_locks.h"
#include "weft/history/run_scan.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::make_run;
using testing::make_saved;
using testing::slurp;
using testing::spill;
using testing::TempDir;

using Texts = std::vector<std::string>;

Texts names_in(const ScannedRuns& scanned) {
  Texts names;
  for (const RunFacts& r : scanned.runs) names.push_back(fs::path(r.path).filename().string());
  return names;
}

TEST(RunIndex, RemembersBytesAsTheyAre) {
  const TempDir dir;
  const std::string odd("/r/\xff\n'\"; DROP TABLE runs; --<script>");
  {
    RunIndex index(dir / "deep/folders/runs.db");
    EXPECT_TRUE(index.runs().empty());
    index.add_roots({"/b", "/a", "/b"});
    index.update({{odd, "stamp", "{}"}, {"/a/1", "", "x"}}, {});
    index.update({{"/a/1", "new", "y"}}, {"/nowhere"});
  }
  RunIndex again(dir / "deep/folders/runs.db");
  EXPECT_EQ(again.roots(), (Texts{"/a", "/b"}));
  EXPECT_EQ(again.runs(), (std::vector<RunIndex::Entry>{{"/a/1", "new", "y"}, {odd, "stamp", "{}"}}));
}

// So it is of use on a disk that is full, or to who may only read it.
TEST(RunIndex, OpeningOneThatIsThereWritesNothing) {
  const TempDir dir;
  const fs::path file = dir / "runs.db";
  { RunIndex(file).add_roots({"/a"}); }
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(file, long_ago);
  const auto before = fs::last_write_time(file);
  { EXPECT_EQ(RunIndex(file).roots(), Texts{"/a"}); }
  EXPECT_EQ(fs::last_write_time(file), before);
}

TEST(RunIndex, ForgetsARootWithWhatIsBelowItAlone) {
  const TempDir dir;
  RunIndex index(dir / "runs.db");
  index.add_roots({"/a", "/a-2"});
  index.update({{"/a", "", ""}, {"/a/x", "", ""}, {"/a-2/x", "", ""}, {"/a0", "", ""}, {"/b", "", ""}}, {});
  index.remove_root("/a");
  EXPECT_EQ(index.roots(), Texts{"/a-2"});
  Texts left;
  for (const auto& e : index.runs()) left.push_back(e.path);
  EXPECT_EQ(left, (Texts{"/a-2/x", "/a0", "/b"}));
}

TEST(RunIndex, WhatIsNoIndexIsRefusedAndNotTouched) {
  const TempDir dir;
  const std::string text = "no database at all, but a text of some length: " + std::string(200, 'x');
  spill(dir / "text", text);
  EXPECT_SAYS(error_of<FileError>([&] { RunIndex index(dir / "text"); }), "can be removed at any time");
  EXPECT_EQ(slurp(dir / "text"), text);
  EXPECT_SAYS(error_of<FileError>([&] { RunIndex index(dir.path()); }), "--index names another place");
  spill(dir / "file", "");
  EXPECT_SAYS(error_of<FileError>([&] { RunIndex index(dir / "file/below/runs.db"); }), "file");
}

// An index whose second half is gone, or overwritten: an error, and made anew once it is removed.
TEST(RunIndex, ADamagedIndexIsAnErrorThatSaysWhatToDo) {
  const TempDir dir;
  const fs::path file = dir / "runs.db";
  {
    RunIndex index(file);
    std::vector<RunIndex::Entry> many;
    for (int i = 0; i < 200; ++i) many.push_back({"/r/" + std::to_string(i), "", std::string(500, 'x')});
    index.update(many, {});
  }
  std::string bytes = slurp(file);
  ASSERT_GT(bytes.size(), 40'000u);
  std::fill(bytes.begin() + 4096, bytes.end(), '\x5a');
  spill(file, bytes);
  const std::string error = error_of<FileError>([&] {
    RunIndex index(file);
    index.runs();
  });
  EXPECT_SAYS(error, "can be removed at any time");
}

// Processes that open one new index at once, and write each its own runs again and again.
TEST(RunIndex, ManyWritersLoseNothing) {
  const TempDir dir;
  constexpr int kWriters = 4, kTimes = 5;
  std::vector<pid_t> writers;
  for (int w = 0; w < kWriters; ++w) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        for (int i = 0; i < kTimes; ++i) {
          RunIndex index(dir / "runs.db");
          index.add_roots({"/root-" + std::to_string(w)});
          index.update({{"/" + std::to_string(w) + "/" + std::to_string(i), "s", "f"}}, {});
        }
      } catch (const std::exception&) { ::_exit(1); }
      ::_exit(0);
    }
    writers.push_back(child);
  }
  for (const pid_t child : writers) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  RunIndex index(dir / "runs.db");
  EXPECT_EQ(index.runs().size(), size_t(kWriters * kTimes));
  EXPECT_EQ(index.roots().size(), size_t(kWriters));
}

// --- the scan ---

TEST(RunScan, FindsRunsAtAnyDepthAndThroughLinks) {
  const TempDir dir;
  make_run(dir / "runs/b");
  make_run(dir / "runs/deep/er/a");
  make_run(dir / "runs/.hidden/c");
  make_run(dir / "elsewhere/d");
  make_run(dir / "runs/b/checkpoints/e");  // within a run
  fs::create_directory_symlink(dir / "elsewhere/d", dir / "runs/link");
  fs::create_directory_symlink(dir / "runs", dir / "runs/circle");
  fs::create_symlink("nowhere", dir / "runs/broken");
  make_run(dir / "runs/b.removing");  // what is left of one
  Texts notes;
  const Texts found = find_run_folders(dir / "runs", notes);
  const fs::path real = fs::canonical(dir.path());
  EXPECT_EQ(found, (Texts{real / "elsewhere/d", real / "runs/b", real / "runs/deep/er/a"}));
  EXPECT_EQ(notes, Texts());
  EXPECT_EQ(find_run_folders(dir / "runs/b", notes), Texts{real / "runs/b"});
}

TEST(RunScan, ReadsAgainWhatHasChangedAndForgetsWhatIsGone) {
  const TempDir dir;
  make_run(dir / "runs/a", {.steps = 2});
  make_run(dir / "runs/b");
  RunIndex index(dir / "runs.db");
  index.add_roots({root_of(dir / "runs")});
  EXPECT_EQ(scan_runs(index).num_read, 2);
  const ScannedRuns still = scan_runs(index);
  EXPECT_EQ(still.num_read, 0);
  EXPECT_EQ(names_in(still), (Texts{"a", "b"}));
  EXPECT_EQ(still.runs[0].step, 2);

  make_run(dir / "runs/a", {.steps = 3});
  fs::remove_all(dir / "runs/b");
  make_run(dir / "runs/c");
  const ScannedRuns later = scan_runs(index);
  EXPECT_EQ(later.num_read, 2);
  EXPECT_EQ(names_in(later), (Texts{"a", "c"}));
  EXPECT_EQ(later.runs[0].step, 3);
  EXPECT_EQ(index.runs().size(), 2u);
}

// Thrown away, it comes back from the folders, to the byte.
TEST(RunScan, TheIndexIsWhollyWhatTheFoldersSay) {
  const TempDir dir;
  make_run(dir / "runs/a", {.held_out = {{4, 2.25}}});
  const fs::path damaged = make_run(dir / "runs/b");
  spill(damaged / "recipe.toml", slurp(damaged / "recipe.toml") + "\nwrong = 1\n");
  RunIndex first(dir / "1.db"), second(dir / "2.db");
  for (RunIndex* index : {&first, &second}) index->add_roots({root_of(dir / "runs")});
  const auto runs = scan_runs(first).runs;
  EXPECT_EQ(scan_runs(first).runs, runs) << "from the index";
  EXPECT_EQ(scan_runs(second).runs, runs);
  EXPECT_EQ(first.runs(), second.runs());
  EXPECT_EQ(scan_runs(first, ScanWay::everything).runs, runs);
  EXPECT_EQ(runs.at(1).status, RunStatus::unreadable);
}

TEST(RunScan, FactsThatMakeNoSenseAreReadAnew) {
  const TempDir dir;
  make_run(dir / "runs/a");
  RunIndex index(dir / "runs.db");
  index.add_roots({root_of(dir / "runs")});
  scan_runs(index);
  for (const char* facts : {"", "{", "[]", "{\"status\": \"odd\"}", "\xff"}) {
    auto entries = index.runs();
    entries[0].facts = facts;
    index.update(entries, {});
    const ScannedRuns scanned = scan_runs(index);
    EXPECT_EQ(scanned.num_read, 1) << facts;
    EXPECT_EQ(scanned.runs.at(0).step, 4) << facts;
  }
}

TEST(RunScan, TheStatusIsThatOfNow) {
  const TempDir dir;
  const fs::path run = make_run(dir / "runs/a");
  make_saved(run, 4);
  RunIndex index(dir / "runs.db");
  index.add_roots({root_of(dir / "runs")});
  {
    const RunLock lock(run);
    EXPECT_EQ(scan_runs(index).runs.at(0).status, RunStatus::running);
  }
  const ScannedRuns later = scan_runs(index);
  EXPECT_EQ(later.num_read, 0);
  EXPECT_EQ(later.runs.at(0).status, RunStatus::finished);
}

TEST(RunScan, RunsOfARootThatIsNotThereAreAwayAndNotForgotten) {
  const TempDir dir;
  make_saved(make_run(dir / "share/a"), 4);
  RunIndex index(dir / "runs.db");
  index.add_roots({root_of(dir / "share")});
  scan_runs(index);
  fs::rename(dir / "share", dir / "unmounted");
  const ScannedRuns scanned = scan_runs(index);
  EXPECT_EQ(scanned.runs.at(0).status, RunStatus::away);
  EXPECT_EQ(scanned.runs.at(0).step, 4);
  EXPECT_SAYS(scanned.notes.at(0), "is not there now");
  fs::rename(dir / "unmounted", dir / "share");
  EXPECT_EQ(scan_runs(index).runs.at(0).status, RunStatus::finished);
}

TEST(FindRun, TakesPathsIdsAndEndsOfPaths) {
  const std::vector<RunFacts> runs{{.path = "/x/runs/first", .id = "aaaa111111"},
                                   {.path = "/x/more/first", .id = "aaaa222222"},
                                   {.path = "/x/runs/2024", .id = "bbbb333333"},
                                   {.path = "/x/runs/not-first", .id = "2024444444"}};
  EXPECT_EQ(find_run(runs, "/x/runs/first").id, "aaaa111111");
  EXPECT_EQ(find_run(runs, "/x/runs/first/").id, "aaaa111111");
  EXPECT_EQ(find_run(runs, "runs/first").id, "aaaa111111");
  EXPECT_EQ(find_run(runs, "aaaa2").id, "aaaa222222");
  EXPECT_EQ(find_run(runs, "not-first").id, "2024444444");
  const auto refusal = [&](const char* name) { return error_of<ConfigError>([&] { find_run(runs, name); }); };
  EXPECT_SAYS(refusal("first"), "may be 2 runs");
  EXPECT_SAYS(refusal("first"), "aaaa222222  /x/more/first");
  EXPECT_SAYS(refusal("2024"), "may be 2 runs");  // a name, and an id
  EXPECT_SAYS(refusal("aaa"), "no such run");     // too short for an id
  EXPECT_SAYS(refusal("not-frist"), "did you mean not-first?");
  EXPECT_SAYS(refusal(""), "no such run");
  EXPECT_SAYS(error_of<ConfigError>([&] { find_run(runs, "runs/first", RunNaming::exactly); }), "by its folder or id");
  EXPECT_EQ(find_run(runs, "aaaa2", RunNaming::exactly).id, "aaaa222222");
}

// A folder of this project is not one of the same name in another, which is known.
TEST(FindRun, WhatIsHereMeansItself) {
  const TempDir dir;
  const std::string here = fs::canonical(make_run(dir / "p2/runs/first")).string();
  const std::vector<RunFacts> other{{.path = "/p1/runs/first", .id = "aaaa111111"}};
  const std::vector<RunFacts> both{other[0], {.path = here, .id = "bbbb111111"}};
  const fs::path before = fs::current_path();
  fs::current_path(dir / "p2");
  EXPECT_SAYS(error_of<ConfigError>([&] { find_run(other, "runs/first"); }), "no run that is known");
  EXPECT_EQ(find_run(both, "runs/first/").path, here);
  fs::current_path(before);
  EXPECT_EQ(find_run(other, "runs/first").id, "aaaa111111");
}

}  // namespace
}  // namespace weft
