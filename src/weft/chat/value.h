// Values of chat templates: those of Python that Jinja's templates see. Copies share strings, lists and dictionaries,
// which never change; only a namespace does. Only a namespace can contain itself, and nothing is nested deeper than
// kDeepest, so that every walk over a value ends.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "weft/base/error.h"

namespace weft::chat {

[[noreturn]] inline void fail(const std::string& what) { throw Error(what); }

// Bounds one rendering's time and memory, so that no template can hang or fill the memory. Each call throws Error once
// a bound is passed.
class Budget {
 public:
  static constexpr size_t kMaxSteps = 1'000'000;
  static constexpr size_t kMaxBytes = size_t{512} << 20;

  void step(size_t count = 1) {
    if ((steps_ += count) > kMaxSteps) fail("the template takes too many steps");
  }
  // Before this many bytes are made, of text or of a list.
  void make(size_t bytes) {
    if (bytes > kMaxBytes || (made_ += bytes) > kMaxBytes) fail("the template makes too much text");
  }
  // Before this many bytes are looked through.
  void read(size_t bytes) { step(1 + bytes / 256); }

 private:
  size_t steps_ = 0, made_ = 0;
};

struct Value;
struct List;
class Dict;
struct Function;
struct Namespace;
struct Loop;
using Items = std::vector<Value>;

inline constexpr int kDeepest = 100;

// It may be tested for being defined, printed (as nothing) and looped over (no iterations); any other use is an error
// with this message.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
// The filters safe and escape make a string safe; + and % then escape what they join to it for HTML, as Python's Markup
// does.
struct Text {
  std::shared_ptr<const std::string> text;
  bool safe = false;
};

struct Value {
  std::variant<Undefined, std::nullptr_t, bool, int64_t, double, Text, std::shared_ptr<List>, std::shared_ptr<Dict>,
               std::shared_ptr<Function>, std::shared_ptr<Namespace>, std::shared_ptr<Loop>>
      of;

  Value() = default;
  Value(std::nullptr_t) : of(nullptr) {}
  Value(bool value) : of(value) {}
  Value(int value) : of(int64_t{value}) {}
  Value(int64_t value) : of(value) {}
  Value(double value) : of(value) {}
  Value(std::string text) : of(Text{std::make_shared<const std::string>(std::move(text)), false}) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<Dict> dict) : of(std::move(dict)) {}
  Value(std::shared_ptr<Function> function) : of(std::move(function)) {}
  Value(std::shared_ptr<Namespace> names) : of(std::move(names)) {}
  Value(std::shared_ptr<Loop> loop) : of(std::move(loop)) {}

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(of);
  }
  template <class T>
  bool holds() const {
    return is<std::shared_ptr<T>>();
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<std::nullptr_t>(); }
  bool is_string() const { return is<Text>(); }
  bool is_safe() const { return is_string() && std::get<Text>(of).safe; }
  bool is_dict() const { return holds<Dict>(); }
  bool is_whole() const { return is<bool>() || is<int64_t>(); }
  bool is_number() const { return is_whole() || is<double>(); }
  const std::string& string() const { return *std::get<Text>(of).text; }
  List& list() const { return *std::get<std::shared_ptr<List>>(of); }
  Dict& dict() const { return *std::get<std::shared_ptr<Dict>>(of); }
};

Value undefined(std::string why);
// The same string, or the strings of a list, safe.
Value safe(Value text);

// Python's sequences and iterators. A generator is empty once it was gone through.
struct List {
  enum class Kind { kList, kTuple, kRange, kView, kGenerator };
  Kind kind;
  Items items;
  int depth;
};
// Throws Error where it would be nested too deep.
Value make_list(Items items, List::Kind kind = List::Kind::kList);

// In the order in which keys came. Keys are strings, numbers, booleans and None.
class Dict {
 public:
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  const Value* find(const Value& key) const;  // nullptr: not there, or no key
  const Value* get(std::string_view key) const;
  // Throws Error where the key is of another kind, or the value nested too deep.
  void set(const Value& key, Value value);
  void clear();
  int depth() const { return depth_; }

 private:
  std::vector<std::pair<Value, Value>> items_;
  std::map<std::string, size_t, std::less<>> index_;
  int depth_ = 0;
};
// The value under a key of `v`; nullptr if it has no such key, or is no dictionary.
inline const Value* get(const Value& v, std::string_view key) { return v.is_dict() ? v.dict().get(key) : nullptr; }
// The same, where null counts as nothing: rows of tables have all keys.
inline const Value* given(const Value& v, std::string_view key) {
  const Value* found = get(v, key);
  return found == nullptr || found->is_none() ? nullptr : found;
}
Value make_dict();

struct Arguments {
  Items positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Function {
  std::string name;
  std::function<Value(const Arguments&)> call;
  int depth = 0;  // of what it holds
};
Value make_function(std::string name, std::function<Value(const Arguments&)> call, int depth = 0);

struct Namespace {
  Dict names;
};

// `loop` within a for: where it is now.
struct Loop {
  Items items;
  size_t at = 0;
  Value last_seen{};  // of loop.changed()
  int depth = 0;
};

bool truth(const Value& value);
int depth_of(const Value& value);
// "str", "dict": as Python calls it.
std::string_view kind_of(const Value& value);

// Throws Error where it is no whole number.
int64_t whole(const Value& value);
double number(const Value& value);
const std::string& need_string(const Value& value, std::string_view what);

bool equal(Budget& budget, const Value& a, const Value& b);
// Below 0: a comes before b. Throws Error for values without an order.
int compare(Budget& budget, const Value& a, const Value& b);
bool contains(Budget& budget, const Value& where, const Value& what);

// What a loop goes through: items, keys of a dictionary, characters of a string; a generator is empty afterwards.
// Throws Error for what has no items.
Items items_of(Budget& budget, const Value& value);

// As print shows it, and as it is written in Python.
std::string to_text(Budget& budget, const Value& value);
std::string to_repr(Budget& budget, const Value& value);

struct JsonStyle {
  bool ascii = false;
  bool sorted = false;
  bool lines = false;                   // each item on a line of its own
  std::string indent{};                 // of such lines
  std::string item = ", ", key = ": ";  // what stands between
};
// As json.dumps. Throws Error for what is no JSON.
std::string to_json(Budget& budget, const Value& value, const JsonStyle& style);

// The value of a JSON text; objects keep their order. Throws FileError, beginning with `source`.
Value parse_value(std::string_view json, std::string_view source);

}  // namespace weft::chat
