// Copies of a run's state on disks of the ranks' own hosts, which cost no other disk: checkpoint.local_dir
// (docs/formats/checkpoint.md#local-copies).
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "weft/base/host_name.h"
#include "weft/train/checkpoint_save.h"
#include "weft/train/local_neighbours.h"

namespace weft {

// What is called a run's on every host: its folder's name and a hash of its path.
std::string local_name_of_run(const std::filesystem::path& run);
// The life whose copies count, of RUN/checkpoints/local.json; empty: there are none.
std::string local_life_of(const std::filesystem::path& run);
// Where the shares of that life lie on a host.
std::filesystem::path local_folder_of(const std::string& local_dir, const std::string& name, const std::string& life);

// One copy: writes this rank's share of the state to LIFE/step-N.rank-R-of-W, and then, with neighbours, what this rank
// holds for others beside it, a slice from each `advance` to the next. The constructor returns when the share has been
// copied to the state's snapshot room; a thread writes it, syncs it and gives it its name. All but the destructor are
// collective, and throw the same FileError on all ranks; then the copy is not whole. Destroyed before its end, it waits
// for its thread; what that has written stays. What only a holder cannot write fails nothing: the copy is whole, as far
// as its own hosts go. `state`, `neighbours`, and the model and optimizer of `source`, must outlive it.
class LocalCopy {
 public:
  LocalCopy(const std::filesystem::path& life, const TrainingState& state, CheckpointSource source,
            const std::vector<NeighbourOf>& neighbours);
  ~LocalCopy();
  LocalCopy(const LocalCopy&) = delete;
  LocalCopy& operator=(const LocalCopy&) = delete;

  // True: it is whole, on all ranks. Does not wait for a disk; it waits for the slice that went out at the last call.
  bool advance();
  void wait();
  Communicator& ranks() const { return ranks_; }
  int64_t step() const { return source_.progressed.step; }
  int64_t bytes() const { return bytes_; }                         // of all ranks' data
  bool is_held() const { return neighbours_ && unheld_.empty(); }  // once it is whole: by other hosts too
  const std::string& unheld() const { return unheld_; }            // why not all of it; the same on all ranks
  std::vector<std::filesystem::path> shares() const;               // this rank's, and what it holds

 private:
  void write();
  void write_files(const std::filesystem::path& share) const;
  void run_beside(const std::function<void()>& f);
  void join();
  int rank() const { return ranks_.rank(); }

  const CheckpointSource source_;
  Communicator& ranks_;
  const std::filesystem::path share_;
  const CheckpointLayouts layouts_;
  ShareWriters to_;
  TensorSums sums_;
  std::span<const std::byte> data_;  // of this rank, in the snapshot room
  int64_t bytes_ = 0;
  std::string manifest_;                       // of this rank's share, once it is written
  std::unique_ptr<NeighbourCopy> neighbours_;  // none: no other host holds it
  std::thread thread_;
  std::atomic<bool> is_done_{true};
  std::string failure_;  // why the thread did not
  std::string unheld_;
};

// The local copies of a run, one after the other, of which two stay: the last, and where that is on its own hosts alone
// the last of this life that others hold too, else the one before it. A life is the time from when a process begins, or
// goes back after a spike, until the next does so. The copies of one count until a later one has a whole state of its
// own: they may be newer than what that went on from, as where a host was away.
class LocalCopies {
 public:
  // Begins a life, of a run that goes on from this step's state, on the host of that name. Changes nothing on a disk.
  // Collective.
  LocalCopies(const Recipe& recipe, Communicator& ranks, int64_t from_step, const std::string& host = name_of_host());
  ~LocalCopies();
  LocalCopies(const LocalCopies&) = delete;
  LocalCopies& operator=(const LocalCopies&) = delete;

  bool is_writing() const { return bool(copy_); }
  int64_t step() const { return copy_->step(); }  // of the one that is being written
  // Begins to write one. None may be under way. Collective, and throws as LocalCopy does.
  void begin(const TrainingState& state, CheckpointSource source);
  struct Written {
    int64_t step, bytes, neighbour_bytes;  // of what is on other hosts too: all or nothing
    double seconds;
    std::string unheld;  // why other hosts do not hold all of it, which they were to; the same on all ranks
  };
  // Which hosts hold copies of which, or why none does; empty where the recipe does not ask for it.
  const std::string& neighbours_note() const { return note_; }
  // Of the one under way, once it is whole, and with it this life's. After an error it does not count, and older ones
  // stay. Collective.
  std::optional<Written> advance();
  Written wait();
  // The run has a whole state of this step. Where that is the first one behind what it went on from, copies of older
  // lives count no more, and those that this host has go. Collective. Throws FileError on all ranks; then they count
  // still.
  void has_saved(int64_t step, Communicator& ranks);
  // Removes this rank's shares: the run is saved otherwise.
  void remove_all();
  // The run goes back: begins another life, and no copy of any older one counts. Collective, throws FileError on all
  // ranks. None may be under way.
  void begin_again(Communicator& ranks);

  // Copies of this life: that failed; that are on their own hosts alone; that another save was in the way of.
  int64_t failed = 0, unheld = 0, skipped = 0;

 private:
  void make_known(Communicator& ranks);
  std::vector<std::filesystem::path> other_lives() const;
  std::filesystem::path folder() const { return local_folder_of(local_dir_, name_, life_); }
  Written finish();
  void remove_old();
  void drop();
  void find_neighbours(Communicator& ranks, const std::string& host);
  void remove_beside(std::vector<std::filesystem::path> folders);
  void join_removal();

  const std::filesystem::path run_;
  const std::string local_dir_;
  const int64_t from_step_;
  std::vector<NeighbourOf> neighbours_;  // none: no other host holds copies
  std::string name_, life_, note_;
  bool is_known_ = false;  // to the run's folder
  std::unique_ptr<LocalCopy> copy_;
  double began_s_ = 0;
  struct Whole {
    std::vector<std::filesystem::path> shares;  // what this rank has of it
    bool is_held;                               // by other hosts too
  };
  std::vector<Whole> whole_;  // oldest first
  std::thread removal_;       // of shares: large files take a while, and no step waits for them
};

}  // namespace weft
