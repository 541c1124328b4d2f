// The index of runs: an SQLite file that only remembers. All in it but the roots is read from run folders, and can be
// thrown away at any time. Any number of processes of this machine may use one file at once (write-ahead log; a writer
// waits for others at most kIndexWaitS).
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace weft {

inline constexpr double kIndexWaitS = 30;

class RunIndex {
 public:
  // Opens the file, or creates it with its folders. Throws FileError where that cannot be, where it is no index or one
  // of a later weft, or damaged: the message says that it may be removed. An older form of it is made anew, with its
  // roots; where the form is this one's, nothing is written. In a build without SQLite: NotBuilt.
  explicit RunIndex(const std::filesystem::path& file);
  ~RunIndex();
  RunIndex(const RunIndex&) = delete;
  RunIndex& operator=(const RunIndex&) = delete;

  // A run, by the absolute path of its folder: any bytes but NUL.
  struct Entry {
    std::string path;
    std::string stamp;  // stamp_of_run, of when it was read
    std::string facts;  // to_json(RunFacts), as text
    bool operator==(const Entry&) const = default;
  };

  // All throw FileError. What one call changes is there as a whole, or not at all.
  std::vector<std::string> roots() const;  // folders in which runs are looked for, in the order of their names
  void add_roots(const std::vector<std::string>& roots);
  void remove_root(const std::string& root);  // with the runs in and below it
  std::vector<Entry> runs() const;            // in the order of their paths
  void update(const std::vector<Entry>& changed, const std::vector<std::string>& gone);

 private:
  struct Database;
  std::unique_ptr<Database> database_;
};

}  // namespace weft
