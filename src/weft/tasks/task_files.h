// The questions of tasks, from the files that users have.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "weft/tasks/task.h"

namespace weft {

// One file of a task. A folder or tar archive of several files, as BLiMP's, gives a set for each.
struct TaskSet {
  std::string name;   // "piqa"; "blimp_causative"
  std::string group;  // "blimp"; empty: the only set of its task
  Task task;
  std::vector<TaskItem> items;
  std::string preamble = {};  // before each question, in place of examples of its rows
  std::string hash;           // of what is asked: scores of two models are compared only where it is the same
};

// A word of --tasks or --fewshot-from: "piqa=FILE", or "piqa" with a folder in which piqa.jsonl, piqa.jsonl.gz and the
// like lie.
struct TaskPlace {
  Task task;
  std::filesystem::path path;
};
// Throws ConfigError: a task that there is not, one without a file, one that is named twice.
struct TaskWords {
  std::string option;  // for messages
  std::vector<std::string> words;
};
std::vector<TaskPlace> find_task_files(const TaskWords& tasks, const std::filesystem::path& folder);

// Reads JSON (lines, or a list), Parquet, compressed or not, a folder of such files, and tar archives of JSON lines:
// the first `limit` rows of each file; 0: all. Throws FileError with file and row.
std::vector<TaskSet> read_task_sets(const TaskPlace& place, int64_t limit);

// Texts that come before all questions of a set, by the set's name: files *.txt with the names of the task's own, in a
// folder or tar archive; or one, for a task of one file. What is before a line of five dashes is left out. Empty: the
// place has none. Throws FileError.
std::map<std::string, std::string> read_preambles(const TaskPlace& place);

}  // namespace weft
