#include "weft/recipe/recipe_read.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

constexpr int kMostDots = 16;  // in a dotted key; section.key has one

// The library bounds the nesting of values, but not that of dotted keys, whose tables it destroys recursively. Dots are
// counted outside of strings and comments; where text is no TOML, the count may be of something else.
class Dots {
 public:
  Dots(const std::string& text, const std::string& source) : text_(text), source_(source) {}

  void check() {
    int dots = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'')
        skip_string(c);
      else if (c == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else
        ++at_;
      if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos) dots = 0;
      if (c == '.' && ++dots > kMostDots) {
        const auto line = 1 + std::count(text_.begin(), text_.begin() + std::ptrdiff_t(at_), '\n');
        throw ConfigError(fmt::format("{}:{}: a key of more than {} parts; a recipe has only section.key", source_,
                                      line, kMostDots + 1));
      }
    }
  }

 private:
  void skip_string(char quote) {
    const std::string three(3, quote);
    const bool long_string = text_.compare(at_, 3, three) == 0;
    const std::string end = long_string ? three : three.substr(0, 1);
    at_ += end.size();
    while (at_ < text_.size() && text_.compare(at_, end.size(), end) != 0) {
      if (!long_string && text_[at_] == '\n') return;  // an error, which the parser will find
      at_ += quote == '"' && text_[at_] == '\\' ? 2 : 1;
    }
    at_ += end.size();
    while (long_string && at_ < text_.size() && text_[at_] == quote) ++at_;  // """a"""" ends with a quote of its own
  }

  const std::string &text_, &source_;
  size_t at_ = 0;
};

bool in_range(const Allowed& a, double v) {
  return std::isfinite(v) && (a.above_min ? v > a.min : v >= a.min) && (a.below_max ? v < a.max : v <= a.max);
}

bool read(const Allowed& a, std::string& field, const toml::node& value) {
  const auto v = value.is_string() ? value.value<std::string>() : std::nullopt;
  const bool text = v && v->find('\0') == std::string::npos && utf8_error(*v) == std::string::npos;
  if (!text || (!a.choices.empty() && std::find(a.choices.begin(), a.choices.end(), *v) == a.choices.end()))
    return false;
  field = *v;
  return true;
}
bool read(const ChoiceField& field, const toml::node& value) {
  const auto v = value.is_string() ? value.value<std::string>() : std::nullopt;
  const auto at = v ? std::find(field.names.begin(), field.names.end(), *v) : field.names.end();
  if (at == field.names.end()) return false;
  field.set(size_t(at - field.names.begin()));
  return true;
}
bool read(const Allowed& a, int64_t& field, const toml::node& value) {
  const auto v = value.is_integer() ? value.value<int64_t>() : std::nullopt;
  if (!v || !in_range(a, double(*v))) return false;
  field = *v;
  return true;
}
bool read(const Allowed& a, double& field, const toml::node& value) {
  const auto v = value.is_number() ? value.value<double>() : std::nullopt;
  if (!v || !in_range(a, *v)) return false;
  field = *v;
  return true;
}
bool read(const Allowed&, bool& field, const toml::node& value) {
  if (!value.is_boolean()) return false;
  field = *value.value<bool>();
  return true;
}
bool read(const Allowed& a, std::optional<double>& field, const toml::node& value) {
  double v = 0;
  if (!read(a, v, value)) return false;
  field = v;
  return true;
}
template <class T>
bool read(const Allowed& a, std::vector<T>& field, const toml::node& value) {
  std::vector<T> all;
  bool good = true;
  const auto add = [&](const toml::node& one) {
    T v{};
    good = good && read(a, v, one) && one.value<std::string>() != "";
    all.push_back(std::move(v));
  };
  if (const toml::array* list = value.as_array()) {
    for (const toml::node& one : *list) add(one);
  } else if (value.value<std::string>() != "") {
    add(value);
  }
  if (good) field = std::move(all);
  return good;
}

}  // namespace

void fail_toml(const char* condition) { throw std::logic_error(condition); }

toml::table parse_toml(const std::string& text, const std::string& source) {
  Dots(text, source).check();
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& e) {
    throw ConfigError(fmt::format("{}:{}:{}: {}", source, e.source().begin.line, e.source().begin.column,
                                  std::string(e.description()) + "; texts stand in quotes, as in name = \"adamw\""));
  } catch (const std::logic_error&) {  // of fail_toml: the library does not say where
    throw ConfigError(
        fmt::format("{}: not valid TOML; the library does not say where: look at the names of its sections and keys, "
                    "and for signs outside of quotes",
                    source));
  }
}

bool read_value(const RecipeKey& key, const toml::node& value) {
  return std::visit(
      [&](const auto& field) {
        if constexpr (std::is_pointer_v<std::decay_t<decltype(field)>>)
          return read(key.allowed, *field, value);
        else
          return read(field, value);
      },
      key.field);
}

namespace {

void write(std::ostream& out, const toml::node& value);

// "[ 1, 2 ]", "{ a = 1 }". The library's own way of writing them counts columns, and overflows at numbers near 0.
void write_all(std::ostream& out, const toml::array& all) {
  const char* before = "[ ";
  for (const toml::node& one : all) {
    out << std::exchange(before, ", ");
    write(out, one);
  }
  out << (all.empty() ? "[]" : " ]");
}
void write_all(std::ostream& out, const toml::table& all) {
  const char* before = "{ ";
  for (const auto& [key, one] : all) {
    out << std::exchange(before, ", ") << std::string_view(key) << " = ";
    write(out, one);
  }
  out << (all.empty() ? "{}" : " }");
}

// In as few digits as say which it is: 0.05, 2.0.
std::string number(double x) {
  std::string text = fmt::format("{}", x);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

void write(std::ostream& out, const toml::node& value) {
  value.visit([&](const auto& v) {
    if constexpr (toml::is_array<decltype(v)> || toml::is_table<decltype(v)>)
      write_all(out, v);
    else if constexpr (toml::is_string<decltype(v)>)
      out << in_quotes(v.get());
    else if constexpr (toml::is_floating_point<decltype(v)>)
      out << number(v.get());
    else
      out << v;
  });
}

}  // namespace

std::string shown_name(const std::string& name) {
  const bool tame = name.size() <= 60 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
                      return std::isalnum(c) || c == '_' || c == '-' || c == '.';
                    });
  return tame ? name : in_quotes(name);
}

std::string shown(const toml::node& value) {
  std::ostringstream out;
  write(out, value);
  std::string text, written = out.str();
  for (char c : written) {
    if (!std::isspace(static_cast<unsigned char>(c)))
      text += c;
    else if (!text.empty() && text.back() != ' ')
      text += ' ';
  }
  constexpr size_t kLongest = 80;
  if (text.size() <= kLongest) return text;
  text.resize(kLongest - 3);
  text.resize(std::min(text.size(), utf8_error(text)));
  return text + "...";
}

}  // namespace weft
