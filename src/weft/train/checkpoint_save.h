// Writing a checkpoint, at once or while the run goes on.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "weft/base/durable_file.h"
#include "weft/checkpoint/shared_writer.h"
#include "weft/train/checkpoint_state.h"

namespace weft {

// Where the tensors of a checkpoint lie in its files.
struct CheckpointLayouts {
  CheckpointLayouts(const CheckpointSource& source, DType stat);
  SafetensorsLayout weights, optimizer;  // of files in the checkpoint's folder, and in weft/
};
// This rank's share of weights and optimizer state, given to writers of the checkpoint `here`: copied into `room`, one
// behind the other, or written at once where that is empty. Layouts and room must stay. Throws FileError.
struct ShareWriters {
  std::unique_ptr<SharedWriter> weights, optimizer;
};
ShareWriters write_share(const std::filesystem::path& here, const CheckpointLayouts& layouts, std::span<std::byte> room,
                         const CheckpointSource& source, const TrainingState& state);
// Writes into `here` all files of a checkpoint but those with tensors, the manifest as the last. The sums are of all
// ranks (SharedWriter::sums). `more`: of a SharedFile beside them, or null. Throws FileError.
struct TensorSums {
  std::vector<uint64_t> weights, optimizer, more = {};
};
void write_small_files(const std::filesystem::path& here, const CheckpointSource& source,
                       const CheckpointLayouts& layouts, const TensorSums& sums,
                       const SafetensorsLayout* more = nullptr);

// Writes RUN/checkpoints/step-N: to a temporary name, synced, read again and compared with its hashes, renamed. What is
// there already stays until then. Every rank makes one and writes its share of what it keeps, on a file system that all
// of them see. Where the state has room for a snapshot, the constructor returns when this rank's share has been copied
// there; a thread of the save's own writes and reads, and the state may change meanwhile. Else it writes at once.
//
// All but the destructor are collective, and throw the same FileError on all ranks; then nothing has changed, and the
// save is over. `state`, and the model and optimizer of `source`, must outlive it. Destroyed before its end, it waits
// for its thread and leaves nothing.
// One more file of weft/ that all ranks write together, at once.
struct SharedFile {
  SafetensorsLayout layout;
  std::function<void(SharedWriter&)> write;  // what this rank has of it
};

class CheckpointSave {
 public:
  CheckpointSave(const std::filesystem::path& run, const TrainingState& state, CheckpointSource source,
                 std::optional<SharedFile> more = {});
  ~CheckpointSave();
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;

  // Goes on where all ranks have done what they were doing, without waiting for a disk's data. True: it is saved.
  bool advance();
  // Waits until it is saved.
  void wait();
  const std::filesystem::path& path() const { return path_; }
  int64_t step() const { return source_.progressed.step; }

 private:
  struct Files;
  enum class Doing : uint8_t { writes, reads, nothing };
  void create();
  void take_snapshot();
  void run_beside(const std::function<void()>& f);
  void join();
  void finish_writing();
  void begin_to_read();
  void judge();
  int rank() const;

  const TrainingState& state_;
  const CheckpointSource source_;
  const std::optional<SharedFile> more_;
  Communicator& ranks_;
  const std::filesystem::path path_;
  std::unique_ptr<DurableFolder> folder_;  // of the rank that leads
  std::unique_ptr<Files> files_;
  Doing doing_ = Doing::writes;
  std::unique_ptr<CheckpointCheck> check_;
  std::vector<uint64_t> sums_;
  std::thread thread_;
  std::atomic<bool> is_done_{true};  // what the thread was doing
  std::string failure_;              // why it did not
};

}  // namespace weft
