#include "weft/pipeline/input_files.h"

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// For patterns without **.
std::vector<std::string> glob_matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> names;
  if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i) names.emplace_back(found.gl_pathv[i]);
  globfree(&found);
  std::sort(names.begin(), names.end());  // by bytes: the same in every locale
  return names;
}

bool lies_in(const fs::path& inner, const fs::path& outer) {
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

std::string cannot_be_read(const std::error_code& error) { return "cannot be read: " + error.message(); }

// Why this file cannot be opened; empty: no known reason. System errors do not count: reading reports them.
std::string why_unreadable(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return "is a link to nothing";
  if (error == std::errc::too_many_symbolic_link_levels) return "is a link to itself, by itself or through others";
  if (error == std::errc::permission_denied || error == std::errc::filename_too_long) return cannot_be_read(error);
  if (error || status.type() != fs::file_type::regular) return "";
  return eaccess(path.c_str(), R_OK) == 0 || errno != EACCES
             ? ""
             : cannot_be_read(std::make_error_code(std::errc::permission_denied));
}

// All files in a folder, by name, and in those that links in it lead to.
class FolderWalk {
 public:
  // `given`: the folder was named itself, and may be a link to anywhere.
  FolderWalk(const fs::path& folder, bool given) {
    if (given) given_ = folder;
    walk(folder);
    std::sort(files_.begin(), files_.end());
  }
  const std::vector<std::string>& files() const { return files_; }
  // The folder itself and all in it, in no order.
  const std::vector<std::string>& folders() const { return folders_; }
  // Folders among the files that cannot be listed, and why.
  const std::map<std::string, std::string>& unreadable() const { return unreadable_; }

 private:
  void walk(const fs::path& folder) {
    std::error_code error;
    const fs::path where = fs::canonical(folder, error);
    fs::directory_iterator entries(folder, error);
    if (error == std::errc::permission_denied) return leave_out(folder, cannot_be_read(error));
    if (error) throw fs::filesystem_error("", folder, error);
    const bool in_itself =
        fs::is_symlink(folder, error) && !is_given(folder) &&
        lies_in(fs::weakly_canonical(folder.parent_path().empty() ? "." : folder.parent_path(), error), where);
    if (in_itself || std::find(above_.begin(), above_.end(), where) != above_.end())
      return leave_out(folder, "is a link to a folder that it is in: it would be read for ever");
    folders_.push_back(folder.string());
    above_.push_back(where);
    for (const fs::directory_entry& entry : entries) {
      const fs::path& path = entry.path();
      if (path.filename().string().starts_with('.')) continue;
      if (entry.is_directory(error))
        walk(path);
      else
        files_.push_back(path.string());
    }
    above_.pop_back();
  }
  bool is_given(const fs::path& folder) const { return folder == given_; }
  void leave_out(const fs::path& folder, const std::string& why) {
    files_.push_back(folder.string());
    unreadable_[folder.string()] = why;
  }

  fs::path given_;
  std::vector<fs::path> above_;  // folders that are being gone through, without links
  std::vector<std::string> files_, folders_;
  std::map<std::string, std::string> unreadable_;
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

void add_files(const FolderWalk& walk, std::vector<FoundFile>& found) {
  for (const std::string& file : walk.files()) {
    const auto known = walk.unreadable().find(file);
    found.push_back({file, known != walk.unreadable().end() ? known->second : why_unreadable(file)});
  }
}

void add_files_of(const std::string& name, bool given, std::vector<FoundFile>& found) {
  std::error_code error;
  if (fs::is_directory(name, error))
    add_files(FolderWalk(name, given), found);
  else
    found.push_back({name, why_unreadable(name)});
}

// A part ** stands for any number of folders, one in the other, and for none; at the end, for all files. With one, by
// bytes, each once.
std::vector<FoundFile> matches(const std::string& pattern) {
  std::vector<FoundFile> found;
  const size_t any = part_of_any_depth(pattern);
  if (any == std::string::npos) {
    for (const std::string& name : glob_matches(pattern)) add_files_of(name, false, found);
    return found;
  }
  const std::string above = pattern.substr(0, any);
  const std::string below = any + 2 < pattern.size() ? pattern.substr(any + 3) : "";
  const auto shown = [&](const std::string& file) { return any == 0 ? file.substr(2) : file; };  // without "./"
  std::map<std::string, std::string> all;
  for (const std::string& top : any == 0 ? std::vector<std::string>{"./"} : glob_matches(above)) {
    const FolderWalk walk(top == "/" ? top : top.substr(0, top.size() - 1), true);
    found.clear();
    if (below.empty()) add_files(walk, found);
    for (const auto& [folder, why] : walk.unreadable()) found.push_back({folder, why});
    if (!below.empty())
      for (const std::string& folder : walk.folders())
        for (FoundFile& one : matches(as_pattern(folder) + "/" + below)) found.push_back(std::move(one));
    for (const FoundFile& one : found) all[shown(one.path)] = one.unreadable;
  }
  found.clear();
  for (const auto& [file, why] : all) found.push_back({file, why});
  return found;
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

fs::path resolved(const fs::path& path) {
  std::error_code error;  // as of a link to itself
  fs::path whole = fs::weakly_canonical(fs::absolute(path), error);
  if (error) whole = fs::absolute(path);
  return whole.has_filename() ? whole : whole.parent_path();  // without a slash at its end
}

// "caf\xe9.txt": other bytes than UTF-8's as their numbers.
std::string escaped(const std::string& name) {
  std::string text;
  for (std::string_view rest = name; !rest.empty();) {
    const size_t good = std::min(utf8_error(rest), rest.size());
    text += rest.substr(0, good);
    if (good == rest.size()) break;
    text += fmt::format("\\x{:02x}", uint8_t(rest[good]));
    rest.remove_prefix(good + 1);
  }
  return text;
}

// Whether there is something by this name, be it a link to nothing.
bool is_name(const std::string& name) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(name, error).type();
  return error == std::errc::permission_denied || (type != fs::file_type::not_found && type != fs::file_type::none);
}

}  // namespace

std::vector<FoundFile> find_files(const std::vector<std::string>& names) {
  std::vector<FoundFile> files;
  for (const std::string& name : names) {
    const size_t before = files.size();
    try {
      std::vector<FoundFile> found;
      if (is_name(name))
        add_files_of(name, true, found);
      else
        found = matches(name);
      for (FoundFile& one : found) {
        if (utf8_error(one.path) != std::string::npos)
          one = {escaped(one.path), "has a name that is not UTF-8, and cannot be noted: rename the file"};
        files.push_back(std::move(one));
      }
    } catch (const fs::filesystem_error& e) {
      throw FileError(fmt::format("{}: {}", e.path1().string(), e.code().message()));
    }
    if (files.size() == before)
      throw FileError(name.find_first_of("*?[") == std::string::npos || fs::exists(name)
                          ? fmt::format("{}: there is no such file, and no file in it", name) + about_braces(name)
                          : fmt::format("{}: no file matches this pattern", name) + about_braces(name));
  }
  return files;
}

std::vector<std::string> expand_names(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const FoundFile& one : find_files(names)) {
    if (!one.unreadable.empty()) throw FileError(fmt::format("{}: {}", one.path, one.unreadable));
    files.push_back(one.path);
  }
  return files;
}

void refuse_own_output(const std::vector<std::string>& names, const std::string& run_dir) {
  const std::vector<FoundFile> files = find_files(names);  // says which names give none
  const fs::path output = resolved(run_dir);
  const auto refuse = [&](const std::string& input, const char* how) {
    throw ConfigError(
        fmt::format("run.dir = {}: {} {}; a run does not read the folder that it writes to: give it one "
                    "of its own, beside its inputs",
                    in_quotes(run_dir), how, in_quotes(input)));
  };
  for (const std::string& name : names)
    for (const std::string& one : is_name(name)                                  ? std::vector{name}
                                  : part_of_any_depth(name) == std::string::npos ? glob_matches(name)
                                                                                 : std::vector<std::string>())
      if (lies_in(output, resolved(one))) refuse(one, "is, or lies in, the input");
  for (const FoundFile& file : files)
    if (file.unreadable.empty() && lies_in(resolved(file.path), output)) refuse(file.path, "holds the input");
}

std::vector<InputFile> input_files(const std::vector<SourceConfig>& sources) {
  std::vector<InputFile> files;
  std::vector<std::string> special;  // pipes, sockets, devices
  std::map<std::pair<dev_t, ino_t>, std::string> known;
  for (size_t s = 0; s < sources.size(); ++s) {
    for (FoundFile& found : find_files(sources[s].files)) {
      InputFile file{.path = found.path, .source = s, .unreadable = found.unreadable};
      if (file.unreadable.empty()) {
        struct stat info {};
        if (stat(file.path.c_str(), &info) != 0) throw FileError(fmt::format("{}: cannot be read", file.path));
        if (!S_ISREG(info.st_mode)) special.push_back(file.path);
        const auto [first, added] = known.emplace(std::pair{info.st_dev, info.st_ino}, file.path);
        if (!added)
          throw ConfigError(
              fmt::format("{} and {} are the same file, which would be read twice; name it once, with "
                          "source.copies for more of it",
                          first->second, file.path));
        constexpr int64_t kNs = 1'000'000'000;
        file.bytes = info.st_size;
        file.mtime_ns = info.st_mtim.tv_sec * kNs + info.st_mtim.tv_nsec;
      }
      files.push_back(std::move(file));
    }
  }
  if (!special.empty()) throw FileError(not_regular(special));
  return files;
}

}  // namespace weft
