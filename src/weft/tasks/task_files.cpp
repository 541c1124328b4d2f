#include "weft/tasks/task_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>

#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/mapped_file.h"
#include "weft/data/jsonl.h"
#include "weft/pipeline/byte_reader.h"
#include "weft/pipeline/file_texts.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEndings[] = {"",         ".jsonl",   ".jsonl.gz", ".jsonl.zst", ".json",
                                    ".json.gz", ".parquet", ".tar.gz",   ".tar"};

fs::path file_in(const fs::path& folder, const std::string& option, const std::string& name) {
  for (const char* ending : kEndings)
    if (const fs::path file = folder / (name + ending); fs::exists(file)) return file;
  throw ConfigError(fmt::format("{} {}: {} has no {}{}; name the file, as {}=FILE", option, name, folder.string(), name,
                                fmt::join(kEndings, ", " + name), name));
}

using TakeRow = std::function<void(const JsonlRow&)>;

std::string name_of_set(const TaskPlace& place, const std::string& stem) {
  return stem.empty() ? place.task.name : place.task.name + "_" + stem;
}

// A task with the rows of one file; `stem` tells it from the others of its folder or archive.
struct SetReader {
  const TaskPlace& place;
  int64_t limit;
  std::vector<TaskSet> sets;

  void read(const std::string& stem, const std::string& file, const std::function<void(const TakeRow&)>& for_each) {
    const std::string& task = place.task.name;
    TaskSet set{.name = name_of_set(place, stem),
                .group = stem.empty() ? "" : task,
                .task = place.task,
                .items = {},
                .hash = ""};
    Hasher hasher;
    const auto add = [&](const nlohmann::json& row, const std::string& where, int64_t number) {
      if (limit > 0 && int64_t(set.items.size()) == limit) return;
      set.items.push_back(read_item(place.task, {row, where, number}));
      hasher.add(row.dump());
    };
    for_each([&](const JsonlRow& row) {
      const auto examples = row.json.find("examples");  // as BIG-Bench Hard has all rows of a file
      if (examples == row.json.end() || !examples->is_array()) return add(row.json, row.where, row.line);
      for (size_t i = 0; i < examples->size(); ++i)
        add((*examples)[i], fmt::format("{}: example {}", row.where, i + 1), int64_t(i) + 1);
    });
    if (set.items.empty())
      throw FileError(fmt::format("{}: has no rows; a row of {} is {}", file, task, place.task.shapes));
    set.hash = hasher.hex();
    sets.push_back(std::move(set));
  }
  void read_file(const std::string& stem, const fs::path& file) {
    read(stem, file.string(), [&](const TakeRow& take) {
      const RowFiles more = more_row_files();
      if (more.reads(file)) return more.for_each(file, take);
      for_each_row({.text = MappedFile(file).text(), .source = file.string()}, take);
    });
  }
};

bool is_tar(const fs::path& file) { return without_compression(file).extension() == ".tar"; }

// POSIX ustar: blocks of 512 bytes, a header (name at 0, octal size at 124, kind at 156, "ustar" at 257) before each
// file's bytes.
using TakeFile = std::function<void(const std::string& name, std::string_view text)>;
void for_each_in_tar(const fs::path& file, const TakeFile& take) {
  constexpr size_t kBlock = 512;
  const std::string all = whole_text(file);
  for (size_t at = 0; at + kBlock <= all.size() && all[at] != '\0';) {
    const std::string_view header = std::string_view(all).substr(at, kBlock);
    const std::string name(header.substr(0, 100).substr(0, header.substr(0, 100).find('\0')));
    uint64_t size = 0;
    const char* digits = header.data() + 124;
    const auto number = std::from_chars(digits, digits + 12, size, 8);
    at += kBlock;
    if (header.substr(257, 5) != "ustar" || number.ec != std::errc() || size > all.size() - at)
      throw FileError(
          fmt::format("{}: is no tar archive, or is cut short; unpack it and name its folder", file.string()));
    const bool names_next =
        header[156] == 'L' || (header[156] == 'x' && all.substr(at, size).find(" path=") != all.npos);
    if (names_next)
      throw FileError(fmt::format(
          "{}: has a file whose name is longer than 100 characters; unpack it and name its folder", file.string()));
    const bool is_file = header[156] == '0' || header[156] == '\0';
    if (is_file && !fs::path(name).filename().string().starts_with("."))
      take(name, std::string_view(all).substr(at, size));
    at += (size + kBlock - 1) / kBlock * kBlock;
  }
}

void read_tar(SetReader& reader, const fs::path& file) {
  for_each_in_tar(file, [&](const std::string& name, std::string_view text) {
    if (!is_jsonl(name)) return;
    const std::string source = fmt::format("{}: {}", file.string(), name);
    reader.read(fs::path(name).stem().string(), source,
                [&](const TakeRow& take) { for_each_row({.text = text, .source = source}, take); });
  });
}

void read_folder(SetReader& reader, const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && has_row_texts(without_compression(entry.path()))) files.push_back(entry.path());
  for (const fs::path& file : files) reader.read_file(without_compression(file).stem().string(), file);
}

}  // namespace

std::vector<TaskPlace> find_task_files(const TaskWords& tasks, const fs::path& folder) {
  std::vector<TaskPlace> places;
  const std::string& option = tasks.option;
  for (const std::string& word : tasks.words) {
    const size_t equals = word.find('=');
    const Task task = find_task(option, word.substr(0, equals));
    if (equals == word.npos && folder.empty())
      throw ConfigError(fmt::format("{} {}: name its file, as {}=FILE{}", option, word, word,
                                    option == "--tasks" ? ", or the folder of all by --tasks-dir" : ""));
    for (const TaskPlace& other : places)
      if (other.task.name == task.name) throw ConfigError(fmt::format("{}: {} is named twice", option, task.name));
    const fs::path path = equals == word.npos ? file_in(folder, option, word) : fs::path(word.substr(equals + 1));
    if (!fs::exists(path)) throw FileError(fmt::format("{} {}: there is no {}", option, task.name, path.string()));
    places.push_back({task, path});
  }
  return places;
}

std::vector<TaskSet> read_task_sets(const TaskPlace& place, int64_t limit) {
  SetReader reader{place, limit, {}};
  if (fs::is_directory(place.path))
    read_folder(reader, place.path);
  else if (is_tar(place.path))
    read_tar(reader, place.path);
  else
    reader.read_file("", place.path);
  if (reader.sets.empty())
    throw FileError(fmt::format("{}: holds no JSON or Parquet files with rows of {}: {}", place.path.string(),
                                place.task.name, place.task.shapes));
  std::sort(reader.sets.begin(), reader.sets.end(), [](const TaskSet& a, const TaskSet& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(reader.sets.begin(), reader.sets.end(),
                                        [](const TaskSet& a, const TaskSet& b) { return a.name == b.name; });
  if (twice != reader.sets.end())
    throw FileError(
        fmt::format("{}: two of its files give a set {}; rename one of them", place.path.string(), twice->name));
  return std::move(reader.sets);
}

std::map<std::string, std::string> read_preambles(const TaskPlace& place) {
  std::map<std::string, std::string> texts;
  const auto add = [&](const fs::path& name, std::string_view text, const std::string& stem) {
    const std::string dashes = "\n-----\n";
    if (name.extension() != ".txt") return;
    if (const size_t at = text.find(dashes); at != text.npos) text.remove_prefix(at + dashes.size());
    texts[name_of_set(place, stem)] = std::string(text.substr(0, text.find_last_not_of(" \t\r\n") + 1)) + "\n\n";
  };
  const auto add_named = [&](const fs::path& name, std::string_view text) { add(name, text, name.stem().string()); };
  if (fs::is_directory(place.path)) {
    for (const auto& entry : fs::directory_iterator(place.path))
      if (entry.path().extension() == ".txt") add_named(entry.path(), whole_text(entry.path()));
  } else if (is_tar(place.path)) {
    for_each_in_tar(place.path, add_named);
  } else if (place.path.extension() == ".txt") {
    add(place.path, whole_text(place.path), "");
  }
  return texts;
}

}  // namespace weft
