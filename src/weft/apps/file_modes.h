// The modes of files and folders that this process makes, and those that it starts.
#pragma once
#include <sys/stat.h>

namespace weft {

// While this lives, they are for their owner alone; or, where not private, as the user's umask says, but never for
// everybody to write. The umask is the whole process's: they may nest, but are made while it has one thread.
class FileModes {
 public:
  explicit FileModes(bool is_private) : before_(::umask(S_IRWXG | S_IRWXO)) {
    if (!is_private) ::umask(before_ | S_IWOTH);
  }
  FileModes(const FileModes&) = delete;
  FileModes& operator=(const FileModes&) = delete;
  ~FileModes() { ::umask(before_); }

 private:
  const mode_t before_;
};

}  // namespace weft
