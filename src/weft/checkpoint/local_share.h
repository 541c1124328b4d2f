// One rank's share of a local copy: what this rank writes of a checkpoint, as one file on a disk of its own host
// (docs/formats/checkpoint.md#local-copies). The shares of all ranks together are the checkpoint, whatever layout wrote
// them. A host may hold shares of a neighbour's ranks too, the same files under another name.
//   LIFE/step-N.rank-R-of-W/
//     data            the pieces of tensors, one behind the other
//     manifest.json   which pieces these are, and a hash of them
//     files/          of rank 0: the checkpoint without the numbers of its tensors; weft/manifest.json has their hashes
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/durable_file.h"
#include "weft/checkpoint/manifest.h"
#include "weft/checkpoint/shared_writer.h"

namespace weft {

struct LocalShareName {
  int64_t step = 0;
  int rank = 0, ranks = 1;
  bool of_neighbour = false;  // held for a rank of another host
  bool operator==(const LocalShareName&) const = default;
};
// step-N.rank-R-of-W, and .neighbour behind it where it is one's.
std::string to_string(const LocalShareName& name);
// Of a folder of that name; none of any other, as of one that is not finished.
std::optional<LocalShareName> local_share_name_of(std::string_view folder);

// Why nothing below a life's folder is to be believed, nor written there: it or the folder that it lies in belongs to
// somebody else, is no folder but a link, or others may write to it (to the one that it lies in, none but root's that
// is sticky, as /dev/shm is). Empty: they are this user's own, or are not there.
std::string distrust_of(const std::filesystem::path& life);
// Makes a life's folder and the one that it lies in where they are not there, for this user alone. Throws FileError,
// also with what distrust_of says.
void create_life(const std::filesystem::path& life);

// `count` runs of `bytes` of a tensor, which begin at its byte `offset` and `stride` bytes further each.
struct LocalPieces {
  std::string file;    // of the checkpoint: "model.safetensors"
  std::string tensor;  // as that file calls it, whatever the layout
  int64_t offset = 0, bytes = 0, count = 1, stride = 0;
  bool operator==(const LocalPieces&) const = default;
};
// The pieces that a writer holds (SharedWriter), in their order. `folder`: where the layout's files lie in the
// checkpoint, "" or "weft/".
std::vector<LocalPieces> pieces_of(const std::string& folder, const SafetensorsLayout& layout,
                                   std::span<const SharedWriter::Held> runs);

struct LocalShare {
  LocalShareName name;                   // as the rank that wrote it calls it
  int64_t bytes = 0;                     // of the data
  std::string hash = {};                 // XXH128 of them
  std::vector<LocalPieces> pieces = {};  // in the order of the data, which they cover
};
std::string to_text(const LocalShare& share);
// Throws DamageError, beginning with `source`, where it is not what to_text has made; FileError of a later format.
LocalShare parse_local_share(std::string_view text, std::string_view source);

// Writes data and manifest into `folder`; sets share.bytes and share.hash. Synced. Returns the manifest as it was
// written. Throws FileError.
std::string write_local_share(const std::filesystem::path& folder, LocalShare share, std::span<const std::byte> data);
// Writes the same files of a share that comes in slices, with the manifest that its own rank has written. Synced.
// Throws FileError.
class LocalShareFiles {
 public:
  explicit LocalShareFiles(std::filesystem::path folder);
  void write(std::span<const std::byte> slice);
  void end(std::string_view manifest);

 private:
  const std::filesystem::path folder_;
  DurableFile data_;
};

// What is put together from shares that could not be written: nothing is wrong with them.
class UnwrittenError : public FileError {
 public:
  using FileError::FileError;
};

// From the share of rank 0, makes in `checkpoint`, an empty folder, all but the tensors' numbers: small files, and the
// others with their heads and at their size. Throws UnwrittenError, DamageError; FileError where the share cannot be
// read.
void begin_checkpoint_of(const std::filesystem::path& share, const std::filesystem::path& checkpoint);
// Writes the pieces of a share to their places in what begin_checkpoint_of has made, and syncs them. Reads every byte
// of the share once, by `read`. Throws DamageError where it is not what was saved, or is another share than its name
// says; UnwrittenError; FileError where it cannot be read. Any rank may call it for any share, at the same time as
// others.
void add_share_to(const std::filesystem::path& share, const std::filesystem::path& checkpoint);

}  // namespace weft
