// A file system of its own with little room.
#pragma once
#include <sys/mount.h>

#include <filesystem>
#include <string>
#include <utility>

namespace weft::testing {

// A tmpfs of `bytes` mounted at `path`; not mounted where that is not allowed.
class SmallDisk {
 public:
  SmallDisk(std::filesystem::path path, int64_t bytes) : path_(std::move(path)) {
    std::filesystem::create_directory(path_);
    const std::string size = "size=" + std::to_string(bytes);
    mounted_ = mount("tmpfs", path_.c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  std::filesystem::path path_;
  bool mounted_ = false;
};

}  // namespace weft::testing
