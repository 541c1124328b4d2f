// The files that the sources of a pipeline name.
#pragma once
#include <string>
#include <vector>

#include "weft/pipeline/pipeline_config.h"

namespace weft {

struct InputFile {
  std::string path;
  size_t source = 0;  // its place in config.sources
  int64_t bytes = 0, mtime_ns = 0;
  std::string unreadable = {};  // why it cannot be opened ("is a link to nothing"); empty: it may be read
};

// By source, then in the order in which they are given; those of a pattern or folder by name. A part ** of a pattern
// stands for any number of folders, one in the other, and for none. Folders are gone through
// with all that are in them, and links followed; names that begin with a dot are left out. Links to nothing or in a
// circle, names that are not UTF-8 and what may not be opened are in the list, with what is wrong with them. Throws
// FileError where a name gives no file, and for all pipes, sockets and devices at once; ConfigError for a file that is
// named twice.
std::vector<InputFile> input_files(const std::vector<SourceConfig>& sources);

struct FoundFile {
  std::string path;  // UTF-8: bytes that are none are escaped
  std::string unreadable = {};
};
// The files of one list, which may name a file twice.
std::vector<FoundFile> find_files(const std::vector<std::string>& names);
// The same where all must be readable: throws FileError for one that is not.
std::vector<std::string> expand_names(const std::vector<std::string>& names);
// Throws ConfigError, which names both, where one of these files or folders lies in `run_dir`, or `run_dir` in one of
// the folders: a run reads no folder that it writes to. Links are followed.
void refuse_own_output(const std::vector<std::string>& names, const std::string& run_dir);

}  // namespace weft
