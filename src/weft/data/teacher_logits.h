// The largest logits of a teacher at each token of some samples, in a file (docs/formats/teacher_logits.md).
//   S tokens of a sample   k logits of a token
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "weft/base/descriptor.h"
#include "weft/base/mapped_file.h"
#include "weft/data/training_samples.h"

namespace weft {

// What a file says of itself: from what it was made.
struct TeacherLogitsSpec {
  int64_t top = 0;         // k
  int64_t seq_length = 0;  // S
  int64_t num_samples = 0, vocab_size = 0;
  double temperature = 1;  // of lse
  std::string teacher;     // fingerprint of its weights
  std::string samples;     // fingerprint of the tokens, sample by sample
  int64_t sample_bytes() const { return seq_length * (8 * top + 4); }
  int64_t sample_begin(int64_t sample) const { return kHeaderBytes + sample * sample_bytes(); }
  static constexpr int64_t kHeaderBytes = 4096;
  bool operator==(const TeacherLogitsSpec&) const = default;
};

// Whether `path` is a regular file that begins as these files do, whole or not, whatever its name. No errors.
bool is_teacher_logits(const std::filesystem::path& path);

// Reads a file where it lies. Immutable; any thread may read.
class TeacherLogits {
 public:
  // Throws FileError where it is no such file, or not whole.
  explicit TeacherLogits(const std::filesystem::path& file);
  const TeacherLogitsSpec& spec() const { return spec_; }
  const std::filesystem::path& path() const { return file_.path(); }
  // Throws FileError, with the sample and what to do, where what stands there cannot be.
  void read(int64_t sample, const TopRows& to) const;

 private:
  MappedFile file_;
  TeacherLogitsSpec spec_;
};

// Writes a file in any order of samples, by any number of ranks of one machine. Until commit it is `file`.tmp.
class TeacherLogitsWriter {
 public:
  // The first rank makes the file, `leads`, and commits it; the others open it afterwards. Throws FileError.
  TeacherLogitsWriter(std::filesystem::path file, const TeacherLogitsSpec& spec, bool leads);
  TeacherLogitsWriter(const TeacherLogitsWriter&) = delete;
  TeacherLogitsWriter& operator=(const TeacherLogitsWriter&) = delete;
  ~TeacherLogitsWriter();  // of the first rank: removes what was not committed

  // Rows [first, first + rows.lse.size()) of a sample. Throws FileError.
  void write(int64_t sample, int64_t first, const TopRows& rows);
  // Syncs and renames, when every rank has written. Of the first rank, once.
  void commit();

 private:
  void put(int64_t at, const void* bytes, size_t count);
  [[noreturn]] void fail(const char* what) const;  // with errno

  const std::filesystem::path file_, temporary_;
  const TeacherLogitsSpec spec_;
  const bool leads_;
  Descriptor fd_;
  bool committed_ = false;
};

}  // namespace weft
