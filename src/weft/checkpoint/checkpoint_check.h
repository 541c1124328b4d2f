// Whether a checkpoint is what was saved, to the last byte: it is compared with its manifest.
#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/checkpoint/manifest.h"
#include "weft/comm/communicator.h"

namespace weft {

// A folder that weft has saved: it has weft/state.json, or a manifest.
bool is_checkpoint(const std::filesystem::path& folder);
// RUN/checkpoints/step-N without weft/state.json, or a folder there that a save or a removal has left behind
// (step-N.tmp, .removing, ...): why it is not to be taken for a model. Empty: it is none.
std::string why_no_model(const std::filesystem::path& folder);

// Which part is needed: all of it, to resume a run, or the model without the optimizer's state.
enum class CheckpointPart { all, model };

// One rank's share of a check. Reads by `read`, never by a mapping: a disk that fails is an error, not a signal.
class CheckpointCheck {
 public:
  // Compares all but the tensors: names, sizes, files without tensors, heads. Throws DamageError that names the file;
  // FileError where it cannot be read for a reason that says nothing of its content (too many open files, no rights).
  CheckpointCheck(std::filesystem::path checkpoint, CheckpointPart part);
  // Without a manifest (format 1), it checks only that files can be opened, and there is nothing to sum.
  bool has_manifest() const { return manifest_.has_value(); }
  // The hash of the manifest's text; empty where there is none.
  const std::string& manifest_hash() const { return manifest_hash_; }
  int64_t step() const { return manifest_->step; }
  // The word_sum, for each tensor, of the part that falls to this share of the work. Throws as the constructor does.
  std::vector<uint64_t> sums_of_share(int share, int num_shares, int num_threads) const;
  // Compares the sums of all shares together. Throws DamageError that names files and tensors.
  void judge(std::span<const uint64_t> sums) const;
  // Files in the folder that the checkpoint does not list, and that were not checked.
  std::vector<std::string> strangers() const;

 private:
  struct Place {
    const std::string* file;
    const Manifest::Tensor* tensor;
    int64_t offset;  // of its first byte in the file
  };
  struct ByteRun {
    size_t tensor;          // of tensors_
    int64_t offset, bytes;  // within it
  };
  void open_without_manifest() const;
  void refuse_other_weights() const;
  std::vector<ByteRun> runs_of(int share, int num_shares) const;

  std::filesystem::path checkpoint_;
  CheckpointPart part_;
  std::optional<Manifest> manifest_;
  std::string manifest_hash_;
  std::vector<Place> tensors_;
};

// The check by several ranks, each of which reads its share. Collective: the same result on all ranks, or a FileError
// on all, also where they do not see the same manifest.
struct CheckOutcome {
  std::string damage;         // what is not as it was saved; empty: nothing
  bool has_manifest = false;  // format 1 has none: nothing but the structure could be checked
  int64_t step = -1;          // of the manifest
};
CheckOutcome check_checkpoint(const std::filesystem::path& checkpoint, CheckpointPart part, Communicator& ranks,
                              int num_threads);
// The same of a folder that was named by somebody and is to be read as it is: throws DamageError, with what to do.
// Returns a note where it could not be checked, else nothing; nothing too of a folder that is no checkpoint.
std::string require_whole(const std::filesystem::path& folder, CheckpointPart part, Communicator& ranks,
                          int num_threads);

// Checks a small file that is read by itself: throws DamageError if it is not the one that the folder's manifest lists.
void require_saved(const std::filesystem::path& folder, const std::string& name);

// Adds what each rank has, on all of them. Blocks.
void sum_over(Communicator& ranks, std::vector<uint64_t>& sums);

}  // namespace weft
