// `weft watch`: the live page of runs, beside them or after them.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "weft/page/live_page.h"

namespace weft {

struct WatchOptions {
  std::vector<std::string> runs;  // folders of runs, or of folders with runs
  std::string address = "127.0.0.1";
  int port = 0;                     // 0: one that is free
  std::string token_file;           // empty: no token
  std::string on_event;             // a shell's command, run for each event; empty: none
  std::vector<std::string> events;  // of these kinds; empty: RunNews::urgent_kinds()
};
// Serves until a signal asks it to stop. Returns the exit status; throws Error.
int run_watch(const WatchOptions& options);

// A page of these run folders that plans with this program's backends. In a process that trains, layouts of more than
// kMostRanksInRun ranks are not planned, as the run's end would wait for it.
inline constexpr int kMostRanksInRun = 256;
LivePage::Spec page_of_runs(std::vector<std::filesystem::path> runs, bool in_a_run = false);

}  // namespace weft
