// Two runs compared: what differs in what they were told, read and ran on, in the order in which it likely matters; and
// what each reached.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "weft/history/run_facts.h"

namespace weft {

// What a difference bears on, those that likely matter most first (docs/runs.md, "What matters first").
enum class Bearing : uint8_t {
  data,      // other tokens, or in another order
  task,      // another model, beginning, objective or adapter
  length,    // more steps
  learning,  // other steps: learning rate, batch, optimizer
  chance,    // another seed
  rounding,  // other types or orders of sums
  code,      // another weft
  machine,   // other hardware
  names,     // other paths to what has the same bytes
  manner,    // what changes no result: saving, logging, waiting
};
std::string_view name_of(Bearing bearing);
// "other data: losses are of other texts" and so on: why such a difference matters.
std::string_view reason_of(Bearing bearing);

struct RunDifference {
  Bearing bearing = Bearing::manner;
  std::string what;  // a key of the recipe, or "steps done", "data files", "--from", "code", "machine"
  std::string a, b;  // as each run has it; "not set", "not known"
};

struct ResultDifference {
  std::string name;
  std::optional<RunResult> a, b;  // none: that run has no such result
};

struct RunDiff {
  std::vector<RunDifference> differences = {};  // the likeliest to matter first
  std::vector<ResultDifference> results = {};   // by name
  // Why results may not be comparable: other held-out data, other numbers of steps.
  std::vector<std::string> notes = {};
  std::vector<std::string> not_known = {};  // what was not compared, as a run does not say it: "data files"
};
// Reads nothing from the disk.
RunDiff diff_runs(const RunFacts& a, const RunFacts& b);

// Several runs side by side: diff_runs of the first one with each of the others, in one table.
struct RunTable {
  struct Row {
    Bearing bearing = Bearing::manner;
    std::string what;                 // as of RunDifference
    std::vector<std::string> values;  // of each run
  };
  std::vector<Row> differences = {};      // what is not the same in all; the likeliest to matter first
  std::vector<std::string> results = {};  // the names of all that any run has, sorted
  std::vector<std::string> notes = {}, not_known = {};
};
RunTable compare_runs(const std::vector<RunFacts>& runs);

// Where these keys differ, losses are of other things: held-out texts, tokens, objectives.
inline constexpr std::array<const char*, 4> kMeasureKeys = {"data.valid", "data.valid_fraction", "data.tokenizer",
                                                            "train.objective"};

// What a difference in this key of a recipe bears on, where the data has other bytes.
Bearing bearing_of_key(const std::string& key);

}  // namespace weft
