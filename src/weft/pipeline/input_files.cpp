#include "weft/pipeline/input_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> matches(const std::string& pattern) {
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
  std::vector<std::string> run(const fs::path& folder) && {
    walk(folder);
    std::sort(files_.begin(), files_.end());
    return std::move(files_);
  }

 private:
  void walk(const fs::path& folder) {
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
  std::vector<std::string> files_;
};

// What a name stands for before folders are gone through.
std::vector<std::string> matches_or_itself(const std::string& name) {
  return fs::exists(name) ? std::vector{name} : matches(name);
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
        const std::vector<std::string> found = fs::is_directory(one) ? FolderWalk().run(one) : std::vector{one};
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
                          ? fmt::format("{}: there is no such file, and no file in it", name)
                          : fmt::format("{}: no file matches this pattern", name));
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
  std::map<std::pair<dev_t, ino_t>, std::string> known;
  for (size_t s = 0; s < sources.size(); ++s) {
    for (const std::string& path : expand_names(sources[s].files)) {
      struct stat info {};
      if (stat(path.c_str(), &info) != 0) throw FileError(fmt::format("{}: cannot be read", path));
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
  return files;
}

}  // namespace weft
