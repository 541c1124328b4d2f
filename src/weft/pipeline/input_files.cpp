#include "weft/pipeline/input_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Of a pattern without **.
std::vector<std::string> glob_matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> names;
  if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i) names.emplace_back(found.gl_pathv[i]);
  globfree(&found);
  std::sort(names.begin(), names.end());  // by bytes: the same in every locale
  return names;
}

// All files in a folder, by name, and in those that links in it lead to.
class FolderWalk {
 public:
  explicit FolderWalk(const fs::path& folder) {
    walk(folder);
    std::sort(files_.begin(), files_.end());
  }
  const std::vector<std::string>& files() const { return files_; }
  // The folder itself and all in it, in no order.
  const std::vector<std::string>& folders() const { return folders_; }

 private:
  void walk(const fs::path& folder) {
    folders_.push_back(folder.string());
    const fs::path where = fs::canonical(folder);
    if (std::find(above_.begin(), above_.end(), where) != above_.end())
      throw FileError(fmt::format("{}: a link to a folder that it is in: it would be read for ever", folder.string()));
    above_.push_back(where);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const fs::path& path = entry.path();
      if (path.filename().string().starts_with('.')) continue;
      if (!entry.exists()) throw FileError(fmt::format("{}: a link to nothing", path.string()));
      if (entry.is_directory())
        walk(path);
      else
        files_.push_back(path.string());
    }
    above_.pop_back();
  }

  std::vector<fs::path> above_;  // folders that are being gone through, without links
  std::vector<std::string> files_, folders_;
};

// Where a pattern's first part ** is; npos: it has none. Throws FileError where two stars are in a name.
size_t part_of_any_depth(const std::string& pattern) {
  size_t first = std::string::npos;
  for (size_t at = 0; (at = pattern.find("**", at)) != std::string::npos; at += 2) {
    const bool whole = (at == 0 || pattern[at - 1] == '/') && (at + 2 == pattern.size() || pattern[at + 2] == '/');
    if (!whole)
      throw FileError(
          fmt::format("{}: ** stands for folders of any depth, between slashes, as in dir/**/*.jsonl", pattern));
    first = std::min(first, at);
  }
  return first;
}

// A folder in a pattern, as itself.
std::string as_pattern(const std::string& folder) {
  std::string pattern;
  for (const char c : folder)
    pattern += std::string_view("*?[]\\").find(c) == std::string_view::npos ? std::string(1, c) : std::string{'\\', c};
  return pattern;
}

std::vector<std::string> files_of(const std::string& name) {
  return fs::is_directory(name) ? FolderWalk(name).files() : std::vector{name};
}

// By bytes, each once. A part ** stands for any number of folders, one in the other, and for none; at the end, for all
// files.
std::vector<std::string> matches(const std::string& pattern) {
  const size_t any = part_of_any_depth(pattern);
  if (any == std::string::npos) return glob_matches(pattern);
  const std::string above = pattern.substr(0, any);
  const std::string below = any + 2 < pattern.size() ? pattern.substr(any + 3) : "";
  const auto shown = [&](const std::string& file) { return any == 0 ? file.substr(2) : file; };  // without "./"
  std::set<std::string> found;
  for (const std::string& top : any == 0 ? std::vector<std::string>{"./"} : glob_matches(above)) {
    const FolderWalk walk(top == "/" ? top : top.substr(0, top.size() - 1));
    if (below.empty())
      for (const std::string& file : walk.files()) found.insert(shown(file));
    else
      for (const std::string& folder : walk.folders())
        for (const std::string& one : matches(as_pattern(folder) + "/" + below))
          for (const std::string& file : files_of(one)) found.insert(shown(file));
  }
  return {found.begin(), found.end()};
}

// What a name stands for before folders are gone through.
std::vector<std::string> matches_or_itself(const std::string& name) {
  return fs::exists(name) ? std::vector{name} : matches(name);
}

std::string not_regular(const std::vector<std::string>& files) {
  constexpr size_t kMost = 20;
  std::string all;
  for (size_t i = 0; i < std::min(files.size(), kMost); ++i)
    all += fmt::format("{}{}: cannot be read: is not a regular file", i > 0 ? "\n  " : "", files[i]);
  return all + (files.size() > kMost ? fmt::format("\n  and {} more", files.size() - kMost) : "");
}

const char* about_braces(const std::string& name) {
  const bool braces = name.find('{') != std::string::npos && name.find('}') != std::string::npos;
  return braces && !fs::exists(name) ? "; braces are not known: write each of the names or patterns they stand for"
                                     : "";
}

bool lies_in(const fs::path& inner, const fs::path& outer) {
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

fs::path resolved(const fs::path& path) {
  const fs::path whole = fs::weakly_canonical(fs::absolute(path));
  return whole.has_filename() ? whole : whole.parent_path();  // without a slash at its end
}

}  // namespace

std::vector<std::string> expand_names(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const std::string& name : names) {
    const size_t before = files.size();
    try {
      for (const std::string& one : matches_or_itself(name)) {
        const std::vector<std::string> found = files_of(one);
        files.insert(files.end(), found.begin(), found.end());
      }
    } catch (const fs::filesystem_error& e) {
      throw FileError(fmt::format("{}: {}", e.path1().string(), e.code().message()));
    }
    for (size_t i = before; i < files.size(); ++i)
      if (utf8_error(files[i]) != std::string::npos)
        throw FileError(fmt::format("{}: the name is not UTF-8, and cannot be noted as it is; rename the file",
                                    in_quotes(files[i])));
    if (files.size() == before)
      throw FileError(name.find_first_of("*?[") == std::string::npos || fs::exists(name)
                          ? fmt::format("{}: there is no such file, and no file in it", name) + about_braces(name)
                          : fmt::format("{}: no file matches this pattern", name) + about_braces(name));
  }
  return files;
}

void refuse_own_output(const std::vector<std::string>& names, const std::string& run_dir) {
  const std::vector<std::string> files = expand_names(names);  // says what cannot be read
  const fs::path output = resolved(run_dir);
  const auto refuse = [&](const std::string& input, const char* how) {
    throw ConfigError(
        fmt::format("run.dir = {}: {} {}; a run does not read the folder that it writes to: give it one "
                    "of its own, beside its inputs",
                    in_quotes(run_dir), how, in_quotes(input)));
  };
  for (const std::string& name : names)
    for (const std::string& one : matches_or_itself(name))
      if (lies_in(output, resolved(one))) refuse(one, "is, or lies in, the input");
  for (const std::string& file : files)
    if (lies_in(resolved(file), output)) refuse(file, "holds the input");
}

std::vector<InputFile> input_files(const std::vector<SourceConfig>& sources) {
  std::vector<InputFile> files;
  std::vector<std::string> special;  // pipes, sockets, devices
  std::map<std::pair<dev_t, ino_t>, std::string> known;
  for (size_t s = 0; s < sources.size(); ++s) {
    for (const std::string& path : expand_names(sources[s].files)) {
      struct stat info {};
      if (stat(path.c_str(), &info) != 0) throw FileError(fmt::format("{}: cannot be read", path));
      if (!S_ISREG(info.st_mode)) special.push_back(path);
      const auto [first, added] = known.emplace(std::pair{info.st_dev, info.st_ino}, path);
      if (!added)
        throw ConfigError(
            fmt::format("{} and {} are the same file, which would be read twice; name it once, with "
                        "source.copies for more of it",
                        first->second, path));
      constexpr int64_t kNs = 1'000'000'000;
      files.push_back({path, s, info.st_size, info.st_mtim.tv_sec * kNs + info.st_mtim.tv_nsec});
    }
  }
  if (!special.empty()) throw FileError(not_regular(special));
  return files;
}

}  // namespace weft
