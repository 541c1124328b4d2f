// Files and folders that are whole or absent, whatever stops the program: written beside, synced, renamed.
//   All failures are FileErrors that name the path, the reason and what to do. What stood there before stays intact.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace weft {

// What a file is called until it is whole: `path`.tmp, or `path`.tmp-XXXXXX, so that two programs may write the same
// one.
enum class TemporaryName : uint8_t { one, own };
inline constexpr TemporaryName kOwnName = TemporaryName::own;

// Whether a file of this name is one that a program with an own name was writing as it was killed; of `path`.tmp-XXXXXX
// where the file name of `path` is `of`, if that is told.
bool is_cut_off(std::string_view name, std::string_view of = "");

// Writes one file, buffered. Until commit, all goes to a temporary file, which the destructor removes.
class DurableFile {
 public:
  explicit DurableFile(std::filesystem::path path, TemporaryName name = TemporaryName::one);
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;
  ~DurableFile();

  void write(std::string_view bytes);
  // Syncs the file, renames it to its name, syncs the folder (with a name of its own: where that may be read):
  // afterwards it survives a loss of power. Blocks. Once.
  void commit();

 private:
  void flush();
  [[noreturn]] void fail(const char* what) const;  // with errno

  TemporaryName name_;
  std::filesystem::path path_;
  std::string temporary_, buffer_;
  int fd_ = -1;
};

// The same in one call.
void write_file_durably(const std::filesystem::path& path, std::string_view content,
                        TemporaryName name = TemporaryName::one);

// Builds one folder. Until commit, it is `path`.tmp, which the destructor removes with all that is in it.
class DurableFolder {
 public:
  // Removes what a crash may have left under that name. The parent must exist.
  explicit DurableFolder(std::filesystem::path path);
  DurableFolder(const DurableFolder&) = delete;
  DurableFolder& operator=(const DurableFolder&) = delete;
  ~DurableFolder();

  // The name that a folder has until its commit.
  static std::filesystem::path building_name(const std::filesystem::path& path);
  // Where to write files and folders.
  const std::filesystem::path& building() const { return temporary_; }

  // Syncs all that was written there, renames the folder to `path` (in exchange for a folder of that name, which is
  // then removed), syncs the parent. Blocks. Once.
  void commit();

 private:
  void replace_existing();

  std::filesystem::path path_, temporary_;
  bool committed_ = false;
};

// Creates a folder and the parents that are missing, so that they survive a loss of power.
void create_folders(const std::filesystem::path& folder);

// Syncs a folder's list of names: after it, files created, renamed or removed there stay so.
void sync_folder(const std::filesystem::path& folder);
// Asks the kernel to drop its cache of the synced files in and below a folder, so that the next read comes from the
// disk. File systems in memory ignore this.
void drop_from_memory(const std::filesystem::path& folder);

}  // namespace weft
