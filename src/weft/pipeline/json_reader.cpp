// Rows of JSON files: a line each, or the objects of a list, wherever their lines end.
#include <fmt/format.h>

#include <algorithm>

#include "weft/pipeline/json_row.h"
#include "weft/pipeline/row_reader.h"

namespace weft {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf", kSpace = " \t\r\n";
constexpr size_t kLook = 1 << 16, kMostKey = 1 << 12;

// Where the first visible byte at or after `from` is; npos: there is none.
size_t visible_from(std::string_view text, size_t from) { return text.find_first_not_of(kSpace, from); }

// A member of an object, as far as the text goes.
struct Member {
  std::string_view name;  // with its quotes
  size_t value = 0;       // where its value begins
  bool lists_objects = false;
};
// False: there is no whole name with the beginning of a value.
bool read_member(std::string_view text, size_t at, Member& member) {
  JsonScan key;
  const size_t size = text[at] == '"' ? key.take(text.substr(at)) : 0;
  const size_t colon = key.done() ? visible_from(text, at + size) : std::string_view::npos;
  if (colon == std::string_view::npos || text[colon] != ':') return false;
  member.value = visible_from(text, colon + 1);
  if (member.value == std::string_view::npos) return false;
  member.name = text.substr(at, size);
  const size_t first = text[member.value] == '[' ? visible_from(text, member.value + 1) : std::string_view::npos;
  member.lists_objects = first != std::string_view::npos && text[first] == '{';
  return true;
}

// Whether the object at `at`, as far as the text goes, has a list of objects and none of a row's keys.
bool holds_rows(std::string_view text, size_t at, const std::vector<std::string>& row_keys) {
  bool found = false;
  for (at = visible_from(text, at + 1); at != std::string_view::npos; at = visible_from(text, at + 1)) {
    Member member;
    if (!read_member(text, at, member)) break;
    for (const std::string& key : row_keys)
      if (member.name.substr(1, member.name.size() - 2) == key) return false;
    found |= member.lists_objects;
    JsonScan value;
    at = visible_from(text, member.value + value.take(text.substr(member.value)));
    if (!value.done() || at == std::string_view::npos || text[at] != ',') break;
  }
  return found;
}

enum class Shape { kUnknown, kLines, kValues, kListInObject };

// By what can be seen of a file that begins with { or [. `all`: no more will be.
Shape shape_of(std::string_view text, bool all, bool ended, const std::vector<std::string>& row_keys) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const size_t begin = visible_from(text, 0);
  if (begin == std::string_view::npos) return all ? Shape::kLines : Shape::kUnknown;
  if (text[begin] != '{' && text[begin] != '[') return Shape::kLines;
  const bool object = text[begin] == '{';
  const size_t within = visible_from(text, begin + 1);
  if (!object && within != std::string_view::npos && text[within] == '{') return Shape::kValues;
  JsonScan first;
  const size_t end = begin + first.take(text.substr(begin));
  if (!object && first.has_line_feed()) return Shape::kValues;
  if (!first.broken().empty()) {
    const size_t line = text.find_last_not_of(kSpace, text.find('\n', begin));
    const bool one_line = !first.has_line_feed() && visible_from(text, line + 1) == std::string_view::npos;
    if (one_line && !all) return Shape::kUnknown;
    if (object)
      return (one_line || first.has_line_feed()) && holds_rows(text, begin, row_keys) ? Shape::kListInObject
                                                                                      : Shape::kLines;
    return one_line || text[line] != ']' ? Shape::kValues : Shape::kLines;
  }
  const bool alone = first.done() && visible_from(text, end) == std::string_view::npos;
  if (first.done() && !alone && !first.has_line_feed()) return Shape::kLines;
  if (!all && (!first.done() || alone)) return Shape::kUnknown;
  if (!object) return Shape::kValues;
  const bool is_whole_file = alone && ended, is_no_row = !first.done();
  if ((is_whole_file || is_no_row) && holds_rows(text, begin, row_keys)) return Shape::kListInObject;
  return first.has_line_feed() || !first.done() ? Shape::kValues : Shape::kLines;
}

Shape shape_of(Input& input, size_t max_row_bytes, const std::vector<std::string>& row_keys) {
  for (size_t look = kLook;; look *= 4) {
    const size_t most = std::min(look, max_row_bytes + 1);
    const std::string_view text = input.peek(most);
    const bool ended = text.size() < most;
    const Shape shape = shape_of(text, ended || most > max_row_bytes, ended, row_keys);
    if (shape != Shape::kUnknown) return shape;
  }
}

// Commas and white space stand between the elements of a list, however many. An element that is broken ends where the
// next one begins: as the one before it did, up to the end of its first key.
class JsonReader final : public RowReader {
 public:
  JsonReader(Input input, bool list_in_object, int64_t max_row_bytes)
      : RowReader(std::move(input), max_row_bytes), list_in_object_(list_in_object) {}

  bool next(Row& row) override {
    if (input_.offset() == 0 && input_.peek(3).starts_with(kByteOrderMark)) input_.skip(3);
    while (!ended_) {
      const char c = skip_to_visible();
      if (c == '\0') return end(row);
      if (c == ',' && place_ != Place::kTop) {
        input_.skip(1);
      } else if (place_ == Place::kList) {
        if (c != ']') return element(row);
        input_.skip(1);
        place_ = list_in_object_ ? Place::kObject : Place::kTop;
      } else if (place_ == Place::kObject && c == '}') {
        input_.skip(1);
        place_ = Place::kTop;
      } else if (place_ == Place::kObject) {
        if (pass_member(row)) return true;
      } else if (c == '[') {
        begin_list();
      } else if (c != '{') {
        return go_on_at_next(row, "other text follows the list", 1);
      } else if (!list_in_object_) {
        return element(row);
      } else {
        input_.skip(1);
        place_ = Place::kObject;
        found_.clear();
      }
    }
    return false;
  }
  const std::string& failure() const override { return failure_.empty() ? input_.failure() : failure_; }

 private:
  enum class Place { kTop, kObject, kList };

  char skip_to_visible() {
    gap_.clear();
    for (;;) {
      const std::string_view here = input_.peek(1);
      if (here.empty()) return '\0';
      const size_t space = std::min(visible_from(here, 0), here.size());
      if (space == 0) return here[0];
      gap_ = here.substr(0, space).size() <= kMostKey ? here.substr(0, space) : "";
      input_.skip(space);
    }
  }

  bool element(Row& row) {
    JsonScan scan;
    size_t size = 0;
    while (size <= max_bytes_) {
      const std::string_view here = input_.peek(size + 1).substr(0, max_bytes_ + 1);
      if (here.size() <= size) return end_within(row);
      size += scan.take(here.substr(size));
      if (!scan.broken().empty()) return go_on_at_next(row, "not valid JSON: " + std::string(scan.broken()), size);
      if (!scan.done()) continue;
      take(row, size);
      remember_lead(row.bytes);
      return true;
    }
    begin_broken(row, fmt::format("longer than {} bytes (read.max_row_mb)", max_bytes_));
    input_.skip(size);
    return pass(scan) ? finish_broken(row) : break_off(row, scan);
  }
  // The rest of a value; false: it is broken, or the file ends in it.
  bool pass(JsonScan& scan) {
    for (;;) {
      const std::string_view here = input_.peek(1);
      if (here.empty()) return false;
      input_.skip(scan.take(here));
      if (scan.done()) return true;
      if (!scan.broken().empty()) return false;
    }
  }
  void begin_list() {
    input_.skip(1);
    place_ = Place::kList;
    has_list_ = true;
  }
  // Skips a member that is no row. True: it must be reported.
  bool pass_member(Row& row) {
    Member member;
    if (!read_member(input_.peek(kLook), 0, member)) return go_on_at_next(row, "not valid JSON: no key and value", 1);
    const bool another = member.lists_objects && !found_.empty();
    const std::string name(member.name.substr(0, kMostKey));
    if (another)
      begin_broken(row, fmt::format("the rows are the list {}; {} is another list, which is left out: write it to a "
                                    "file of its own",
                                    found_, name));
    input_.skip(member.value);
    if (member.lists_objects && !another) {
      found_ = name;
      begin_list();
      return false;
    }
    JsonScan value;
    if (pass(value)) return another && finish_broken(row);
    if (!another) begin_broken(row, "");
    return break_off(row, value);
  }

  void begin_broken(Row& row, const std::string& why) {
    constexpr size_t kShown = 1000;
    row.number = ++number_;
    row.begin = input_.offset();
    row.bytes = input_.peek(kShown).substr(0, kShown);
    row.broken = why;
  }
  bool finish_broken(Row& row) {
    row.end = input_.offset();
    return true;
  }
  // The rest of a value that is left out is not there or broken.
  bool break_off(Row& row, const JsonScan& scan) {
    if (row.broken.empty()) row.broken = "not valid JSON: " + std::string(scan.broken());
    if (scan.broken().empty()) {
      failed(cut_short());
      row.broken = "the file is " + failure_;
      return finish_broken(row);
    }
    return skip_to_next(row);
  }
  // The value that begins here is broken after `size` bytes.
  bool go_on_at_next(Row& row, const std::string& why, size_t size) {
    begin_broken(row, fmt::format("{} (byte {})", why, input_.offset() + int64_t(size)));
    const std::string_view here = input_.peek(size).substr(0, size);
    input_.skip(std::max<size_t>(here.find_last_not_of(kSpace) + 1, 1));  // white space may be the next one's lead
    return skip_to_next(row);
  }
  bool skip_to_next(Row& row) {
    while (!input_.peek(1).empty()) {
      const std::string_view here = input_.peek(kLook);
      if (const size_t found = lead_.empty() ? std::string_view::npos : here.find(lead_);
          found != std::string_view::npos) {
        input_.skip(found);
        if (has_list_) place_ = Place::kList;  // what closed it too early may be what was broken
        return finish_broken(row);
      }
      const bool last = here.size() < kLook;
      input_.skip(last ? here.size() : here.size() - lead_.size());
    }
    failed(row.broken);
    return finish_broken(row);
  }
  // How elements begin: with the white space before them where it holds the lines apart, up to the end of the first
  // key.
  void remember_lead(std::string_view element) {
    const size_t quote = element[0] == '{' ? visible_from(element, 1) : std::string_view::npos;
    if (quote == std::string_view::npos || element[quote] != '"') return;
    JsonScan key;
    const size_t end = quote + key.take(element.substr(quote, kMostKey));
    if (!key.done() || end > kMostKey) return;
    const bool apart = gap_.find('\n') != std::string::npos;
    lead_ = (apart ? gap_ : "") + std::string(element.substr(0, end));
  }

  std::string cut_short() const {
    return input_.failure().empty() ? "cut short: the JSON ends too early" : input_.failure();
  }
  void failed(const std::string& why) {
    if (failure_.empty()) failure_ = why;
    ended_ = true;
  }
  bool end(Row& row) {
    if (place_ == Place::kTop && input_.failure().empty()) return false;
    failed(cut_short());
    begin_broken(row, "the file is " + failure_);
    return finish_broken(row);
  }
  bool end_within(Row& row) {
    failed(cut_short());
    begin_broken(row, "the file is " + failure_);
    while (!input_.peek(1).empty()) input_.skip(input_.peek(1).size());
    return finish_broken(row);
  }

  const bool list_in_object_;
  Place place_ = Place::kTop;
  bool ended_ = false;
  bool has_list_ = false;  // rows are in lists, not objects one after the other
  std::string found_;      // the name of the list of rows in this object
  std::string gap_, lead_, failure_;
};

}  // namespace

bool is_json_lines(Input& input, const std::vector<std::string>& row_keys, int64_t max_row_bytes) {
  return shape_of(input, size_t(max_row_bytes), row_keys) == Shape::kLines;
}

std::unique_ptr<RowReader> read_json(Input input, const std::vector<std::string>& row_keys, int64_t max_row_bytes) {
  const Shape shape = shape_of(input, size_t(max_row_bytes), row_keys);
  if (shape == Shape::kLines) return read_separated(std::move(input), "\n", max_row_bytes);
  return std::make_unique<JsonReader>(std::move(input), shape == Shape::kListInObject, max_row_bytes);
}

}  // namespace weft
