// Values as text: as Python prints and writes them, and as JSON.
#include <algorithm>
#include <cmath>

#include "weft/base/json.h"
#include "weft/chat/value.h"
#include "weft/tokenize/unicode.h"

namespace weft::chat {
namespace {

// "1.0", "1e+16": shortest digits that give the number back.
std::string real(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", x);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void append_escape(std::string& out, char32_t code) {
  if (code < 0x100)
    out += fmt::format("\\x{:02x}", uint32_t(code));
  else if (code < 0x10000)
    out += fmt::format("\\u{:04x}", uint32_t(code));
  else
    out += fmt::format("\\U{:08x}", uint32_t(code));
}

bool is_printable(char32_t code) { return code == ' ' || !(is_other(code) || is_white_space(code)); }

std::string python_string(std::string_view text) {
  const bool single = text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const Character c = first_character(text.substr(at));
    at += c.bytes;
    if (c.code == '\n')
      out += "\\n";
    else if (c.code == '\t')
      out += "\\t";
    else if (c.code == '\r')
      out += "\\r";
    else if (c.code == '\\' || c.code == char32_t(quote))
      (out += '\\') += char(c.code);
    else if (is_printable(c.code))
      append_character(out, c.code);
    else
      append_escape(out, c.code);
  }
  return out + quote;
}

std::string json_string(std::string_view text, bool ascii) {
  std::string out = "\"";
  const auto unit = [&out](uint32_t code) { out += fmt::format("\\u{:04x}", code); };
  for (size_t at = 0; at < text.size();) {
    const Character c = first_character(text.substr(at));
    at += c.bytes;
    constexpr std::string_view kShort = "\"\\\n\r\t\f\b", kNames = "\"\\nrtfb";
    const size_t place = c.code < 0x80 ? kShort.find(char(c.code)) : std::string_view::npos;
    if (place != std::string_view::npos)
      (out += '\\') += kNames[place];
    else if (c.code < 0x20 || (ascii && c.code > 0x7e && c.code < 0x10000))
      unit(c.code);
    else if (ascii && c.code >= 0x10000)
      unit(0xd800 + ((c.code - 0x10000) >> 10)), unit(0xdc00 + ((c.code - 0x10000) & 0x3ff));
    else
      append_character(out, c.code);
  }
  return out + "\"";
}

// Appends text, and pays for it.
class Printer {
 public:
  explicit Printer(Budget& budget) : budget_(budget) {}

  void add(std::string_view text) {
    budget_.step();
    budget_.make(text.size());
    out_ += text;
  }
  void repr(const Value& v) {
    if (v.holds<List>()) return list(v.list());
    if (v.is_dict()) return dict(v.dict());
    if (v.is_undefined()) return add("Undefined");
    if (v.is_none()) return add("None");
    if (v.is<bool>()) return add(std::get<bool>(v.of) ? "True" : "False");
    if (v.is<int64_t>()) return add(std::to_string(std::get<int64_t>(v.of)));
    if (v.is<double>()) return add(real(std::get<double>(v.of)));
    if (v.is_string()) return add(python_string(v.string()));
    fail(fmt::format("a value of type {} cannot be printed", kind_of(v)));
  }
  std::string take() { return std::move(out_); }

 private:
  void list(const List& l) {
    using Kind = List::Kind;
    if (l.kind == Kind::kGenerator || l.kind == Kind::kView || l.kind == Kind::kRange)
      fail(fmt::format("{} cannot be printed: make it a list with | list",
                       l.kind == Kind::kGenerator ? "a generator" : "a range or a view of a dictionary"));
    const bool tuple = l.kind != Kind::kList;
    add(tuple ? "(" : "[");
    for (size_t i = 0; i < l.items.size(); ++i) {
      if (i > 0) add(", ");
      repr(l.items[i]);
    }
    if (tuple && l.items.size() == 1) add(",");
    add(tuple ? ")" : "]");
  }
  void dict(const Dict& d) {
    add("{");
    for (size_t i = 0; i < d.items().size(); ++i) {
      if (i > 0) add(", ");
      repr(d.items()[i].first);
      add(": ");
      repr(d.items()[i].second);
    }
    add("}");
  }

  Budget& budget_;
  std::string out_;
};

class JsonPrinter {
 public:
  JsonPrinter(Budget& budget, const JsonStyle& style) : out_(budget), budget_(budget), style_(style) {}

  void value(const Value& v, int depth) {
    if (v.is_none()) return out_.add("null");
    if (v.is<bool>()) return out_.add(std::get<bool>(v.of) ? "true" : "false");
    if (v.is_number()) return out_.add(number_text(v));
    if (v.is_string()) return out_.add(json_string(v.string(), style_.ascii));
    if (v.is_dict()) return dict(v.dict(), depth);
    if (!v.holds<List>() || !is_json(v.list().kind))
      fail(fmt::format("tojson: a value of type {} is not JSON", kind_of(v)));
    const Items& items = v.list().items;
    braces("[]", items.size(), depth, [&](size_t i) { value(items[i], depth + 1); });
  }
  std::string take() { return out_.take(); }

 private:
  static bool is_json(List::Kind kind) { return kind == List::Kind::kList || kind == List::Kind::kTuple; }
  std::string number_text(const Value& v) const {
    const double x = number(v);
    if (std::isnan(x)) return "NaN";
    if (std::isinf(x)) return x < 0 ? "-Infinity" : "Infinity";
    return to_repr(budget_, v);
  }
  void dict(const Dict& d, int depth) {
    auto items = d.items();
    budget_.make(items.size() * 2 * sizeof(Value));
    if (style_.sorted)
      std::stable_sort(items.begin(), items.end(),
                       [&](const auto& a, const auto& b) { return compare(budget_, a.first, b.first) < 0; });
    braces("{}", items.size(), depth, [&](size_t i) {
      out_.add(key(items[i].first));
      out_.add(style_.key);
      value(items[i].second, depth + 1);
    });
  }
  std::string key(const Value& v) const {
    if (v.is_string()) return json_string(v.string(), style_.ascii);
    return v.is_none()    ? "\"null\""
           : v.is<bool>() ? (truth(v) ? "\"true\"" : "\"false\"")
                          : "\"" + number_text(v) + "\"";
  }
  template <class F>
  void braces(const char* pair, size_t count, int depth, const F& item) {
    out_.add(std::string_view(pair, 1));
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out_.add(style_.item);
      line(depth + 1);
      item(i);
    }
    if (count > 0) line(depth);
    out_.add(std::string_view(pair + 1, 1));
  }
  void line(int depth) {
    if (!style_.lines) return;
    out_.add("\n");
    for (int i = 0; i < depth; ++i) out_.add(style_.indent);
  }

  Printer out_;
  Budget& budget_;
  const JsonStyle& style_;
};

// Builds a value from the events of a JSON text that was checked before.
class ValueBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit ValueBuilder(std::string_view source) : source_(source) {}
  Value take() { return std::move(open_.front().front()); }

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(int64_t v) override { return put(v); }
  bool number_unsigned(uint64_t v) override {
    if (v > uint64_t(INT64_MAX)) throw FileError(fmt::format("{}: {} is beyond 64 bits", source_, v));
    return put(int64_t(v));
  }
  bool number_float(double v, const std::string&) override { return put(v); }
  bool string(std::string& v) override { return put(std::move(v)); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool key(std::string& name) override { return put(std::move(name)); }
  bool end_array() override { return put(make_list(close())); }
  bool end_object() override {
    const Items items = close();
    Value v = make_dict();
    for (size_t i = 0; i + 1 < items.size(); i += 2) v.dict().set(items[i], items[i + 1]);
    return put(std::move(v));
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& e) override {
    throw FileError(fmt::format("{}: {}", source_, e.what()));
  }

 private:
  bool put(Value v) {
    open_.back().push_back(std::move(v));
    return true;
  }
  bool open() {
    open_.emplace_back();
    return true;
  }
  Items close() {
    Items items = std::move(open_.back());
    open_.pop_back();
    return items;
  }

  std::string_view source_;
  std::vector<Items> open_{1};  // objects and lists that are not closed yet
};

}  // namespace

std::string to_text(Budget& budget, const Value& v) {
  if (v.is_undefined()) return "";
  if (!v.is_string()) return to_repr(budget, v);
  budget.make(v.string().size());
  return v.string();
}

std::string to_repr(Budget& budget, const Value& v) {
  Printer printer(budget);
  printer.repr(v);
  return printer.take();
}

std::string to_json(Budget& budget, const Value& v, const JsonStyle& style) {
  JsonPrinter printer(budget, style);
  printer.value(v, 0);
  return printer.take();
}

Value parse_value(std::string_view json, std::string_view source) {
  parse_json(json, source);  // strict; its objects do not keep their order
  ValueBuilder builder(source);
  nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  return builder.take();
}

}  // namespace weft::chat
