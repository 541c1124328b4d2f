// As google-research's instruction_following_eval checks them, whose regular expressions stand here.
#include "weft/tasks/instructions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/base/not_built.h"
#include "weft/pipeline/charset.h"
#include "weft/pipeline/rule.h"
#include "weft/tokenize/pattern.h"

namespace weft {
namespace {

using Texts = std::vector<std::string>;
constexpr const char* kBlanks = " \t\r\n\f\v";

std::string stripped(const std::string& text, const char* of = kBlanks) {
  const size_t begin = text.find_first_not_of(of);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(of) + 1 - begin);
}

Texts split(const std::string& text, const std::string& by) {
  Texts parts;
  for (size_t at = 0;;) {
    const size_t end = text.find(by, at);
    parts.push_back(text.substr(at, end - at));
    if (end == text.npos) return parts;
    at = end + by.size();
  }
}

// What matches in a text, one after the other, as Python's re.findall has it.
Texts all_of(const std::string& expression, const std::string& text) {
  const Pattern pattern(expression, "ifeval");
  PatternSpace space;
  Texts found;
  Span match;
  for (size_t at = 0; at <= text.size() && pattern.find(text, at, space, match);
       at = std::max(match.end, match.begin + 1))
    found.emplace_back(match.of(text));
  return found;
}
int64_t count_of(const std::string& expression, const std::string& text) {
  return std::ssize(all_of(expression, text));
}
bool has(const std::string& expression, const std::string& text) { return count_of(expression, text) > 0; }

// What is between the matches.
Texts split_at(const std::string& expression, const std::string& text) {
  const Pattern pattern(expression, "ifeval");
  PatternSpace space;
  Texts parts;
  size_t from = 0;
  for (Span match; pattern.find(text, from, space, match); from = match.end)
    parts.push_back(text.substr(from, match.begin - from));
  parts.push_back(text.substr(from));
  return parts;
}

std::string without_ends(std::string text, const Texts& prefixes, const std::string& suffix) {
  for (const std::string& prefix : prefixes)
    if (text.starts_with(prefix)) text.erase(0, prefix.size());
  if (text.ends_with(suffix)) text.erase(text.size() - suffix.size());
  return text;
}

// The arguments of an instruction, which have been judged.
struct Arguments {
  const nlohmann::json& json;
  int64_t number(const char* key) const { return json.at(key).get<int64_t>(); }
  std::string text(const char* key) const { return stripped(json.at(key).get<std::string>()); }
  Texts texts(const char* key) const { return json.at(key).get<Texts>(); }
  // "less than" or "at least" so many
  bool compares(const char* relation, int64_t count, const char* key) const {
    return text(relation) == "less than" ? count < number(key) : count >= number(key);
  }
};

bool is_in(const std::string& language, const std::string& text) {
  if (!has(R"(\p{L})", text)) return true;  // of which nothing can be told
  Document document;
  document.text = text;
  std::map<std::string, int64_t> changes;
  return !make_language_rule({.keep = {language}, .min_share = 0.5})->judge(document, changes);
}

bool is_all(const char* letters, const char* none_of, const std::string& text) {
  return has(letters, text) && !has(none_of, text);
}

// Ends of sentences but those of common abbreviations and initials; what stands behind the last is one more. NLTK's
// Punkt, by which the benchmark counts, has learned its abbreviations.
int64_t count_sentences(const std::string& text) {
  const std::string abbreviated = R"((?<!\bMr|\bMs|\bDr|\bSt|\be\.g|\bi\.e|\bvs|\b\p{Lu})(?<!\bMrs|\betc))",
                    behind = R"([.!?]*["'”’)\]*]*(?=\s+[^\p{Ll}\s]|\s*\z))";
  const Texts ends = all_of("(?:" + abbreviated + R"(\.|[!?]))" + behind, text);
  const bool is_open = has(R"([\p{L}\p{N}]["'”’)\]*]*\s*\z)", text);
  return std::ssize(ends) + is_open;
}

bool has_paragraphs(const Arguments& a, const std::string& text) {
  const Texts parts = split_at(R"(\s?\*\*\*\s?)", text);
  int64_t count = std::ssize(parts);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!stripped(parts[i]).empty()) continue;
    if (i != 0 && i + 1 != parts.size()) return false;
    --count;
  }
  return count == a.number("num_paragraphs");
}

bool begins_paragraph(const Arguments& a, const std::string& text) {
  const Texts parts = split(text, "\n\n");
  const auto count = std::count_if(parts.begin(), parts.end(), [](const auto& p) { return !stripped(p).empty(); });
  const int64_t nth = a.number("nth_paragraph");
  if (nth > count) return false;
  const std::string paragraph = stripped(parts[size_t(nth - 1)]);
  std::string word = paragraph.substr(0, paragraph.find_first_of(kBlanks));
  for (const char quote : {'\'', '"'}) word.erase(0, std::min(word.find_first_not_of(quote), word.size()));
  word = lower_ascii(word.substr(0, word.find_first_of(".,?!'\"")));
  return count == a.number("num_paragraphs") && !paragraph.empty() && word == lower_ascii(a.text("first_word"));
}

bool has_highlights(const Arguments& a, const std::string& text) {
  int64_t count = 0;
  for (const std::string& one : all_of(R"(\*[^\n\*]*\*)", text)) count += !stripped(stripped(one, "*")).empty();
  for (const std::string& one : all_of(R"(\*\*[^\n\*]*\*\*)", text))
    count += !stripped(without_ends(one, {"**"}, "**")).empty();
  return count >= a.number("num_highlights");
}

bool has_two_replies(const std::string& text) {
  Texts replies;
  const Texts parts = split(text, "******");
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!stripped(parts[i]).empty())
      replies.push_back(stripped(parts[i]));
    else if (i != 0 && i + 1 != parts.size())
      return false;
  }
  return replies.size() == 2 && replies[0] != replies[1];
}

bool is_json(const std::string& text) {
  return nlohmann::json::accept(
      stripped(without_ends(stripped(text), {"```json", "```Json", "```JSON", "```"}, "```")));
}

struct Checker {
  const char* id;
  std::vector<const char*> arguments;
  bool (*check)(const Arguments& a, const std::string& text);
};

bool any_matches(const Arguments& a, const char* key, const char* before, const char* behind, const std::string& text) {
  const Texts all = a.texts(key);
  return std::any_of(all.begin(), all.end(), [&](const auto& word) { return has(before + word + behind, text); });
}

const std::vector<Checker>& checkers() {
  using A = const Arguments&;
  using T = const std::string&;
  static const std::vector<Checker> all = {
      {"change_case:capital_word_frequency",
       {"capital_frequency", "capital_relation"},
       [](A a, T t) {
         const Texts words = all_of(R"(\w[\w.\-/&]*)", t);
         return a.compares("capital_relation",
                           std::count_if(words.begin(), words.end(),
                                         [](const auto& w) { return is_all(R"(\p{Lu})", R"(\p{Ll})", w); }),
                           "capital_frequency");
       }},
      {"change_case:english_capital", {}, [](A, T t) { return is_all(R"(\p{Lu})", R"(\p{Ll})", t) && is_in("en", t); }},
      {"change_case:english_lowercase",
       {},
       [](A, T t) { return is_all(R"(\p{Ll})", R"([\p{Lu}\p{Lt}])", t) && is_in("en", t); }},
      {"combination:repeat_prompt",
       {"prompt_to_repeat"},
       [](A a, T t) { return lower_ascii(stripped(t)).starts_with(lower_ascii(a.text("prompt_to_repeat"))); }},
      {"combination:two_responses", {}, [](A, T t) { return has_two_replies(t); }},
      {"detectable_content:number_placeholders",
       {"num_placeholders"},
       [](A a, T t) { return count_of(R"(\[[^\n]*?\])", t) >= a.number("num_placeholders"); }},
      {"detectable_content:postscript",
       {"postscript_marker"},
       [](A a, T t) {
         const std::string marker = a.text("postscript_marker"), lower = lower_ascii(t);
         if (marker == "P.P.S") return has(R"(p\.\s?p\.\s?s)", lower);
         return marker == "P.S." ? has(R"(p\.\s?s\.)", lower) : lower.find(lower_ascii(marker)) != lower.npos;
       }},
      {"detectable_format:constrained_response", {}, [](A, T t) { return has("My answer is (?:yes|no|maybe)\\.", t); }},
      {"detectable_format:json_format", {}, [](A, T t) { return is_json(t); }},
      {"detectable_format:multiple_sections",
       {"num_sections", "section_spliter"},
       [](A a, T t) {
         return count_of(R"(\s?)" + a.text("section_spliter") + R"(\s?\d+\s?)", t) >= a.number("num_sections");
       }},
      {"detectable_format:number_bullet_lists",
       {"num_bullets"},
       [](A a, T t) {
         const std::string line = R"((?:\A|(?<=\n))\s*)";
         return count_of(line + R"(\*[^\*][^\n]*)", t) + count_of(line + R"(-[^\n]*)", t) == a.number("num_bullets");
       }},
      {"detectable_format:number_highlighted_sections", {"num_highlights"}, has_highlights},
      {"detectable_format:title",
       {},
       [](A, T t) {
         const Texts titles = all_of(R"(<<[^\n]+>>)", t);
         return std::any_of(titles.begin(), titles.end(),
                            [](const auto& title) { return !stripped(stripped(title, "<>")).empty(); });
       }},
      {"keywords:existence",
       {"keywords"},
       [](A a, T t) {
         const Texts words = a.texts("keywords");
         return std::all_of(words.begin(), words.end(), [&](const auto& w) { return has("(?i)" + w, t); });
       }},
      {"keywords:forbidden_words",
       {"forbidden_words"},
       [](A a, T t) { return !any_matches(a, "forbidden_words", R"((?i)\b)", R"(\b)", t); }},
      {"keywords:frequency",
       {"frequency", "keyword", "relation"},
       [](A a, T t) { return a.compares("relation", count_of("(?i)" + a.text("keyword"), t), "frequency"); }},
      {"keywords:letter_frequency",
       {"let_frequency", "let_relation", "letter"},
       [](A a, T t) {
         const std::string lower = lower_ascii(t), letter = lower_ascii(a.text("letter"));
         return a.compares("let_relation", std::ssize(split(lower, letter)) - 1, "let_frequency");
       }},
      {"language:response_language", {"language"}, [](A a, T t) { return is_in(a.text("language"), t); }},
      {"length_constraints:nth_paragraph_first_word",
       {"first_word", "nth_paragraph", "num_paragraphs"},
       begins_paragraph},
      {"length_constraints:number_paragraphs", {"num_paragraphs"}, has_paragraphs},
      {"length_constraints:number_sentences",
       {"num_sentences", "relation"},
       [](A a, T t) { return a.compares("relation", count_sentences(t), "num_sentences"); }},
      {"length_constraints:number_words",
       {"num_words", "relation"},
       [](A a, T t) { return a.compares("relation", count_of(R"(\w+)", t), "num_words"); }},
      {"punctuation:no_comma", {}, [](A, T t) { return t.find(',') == t.npos; }},
      {"startend:end_checker",
       {"end_phrase"},
       [](A a, T t) { return lower_ascii(stripped(stripped(t), "\"")).ends_with(lower_ascii(a.text("end_phrase"))); }},
      {"startend:quotation",
       {},
       [](A, T t) {
         const std::string s = stripped(t);
         return s.size() > 1 && s.front() == '"' && s.back() == '"';
       }},
  };
  return all;
}

const Checker* find_checker(const std::string& id) {
  const auto at = std::find_if(checkers().begin(), checkers().end(), [&](const Checker& c) { return id == c.id; });
  return at == checkers().end() ? nullptr : &*at;
}

// Throws FileError where one is missing or of another type.
nlohmann::json judged_arguments(const Checker& checker, const JsonFields& given) {
  nlohmann::json arguments = nlohmann::json::object();
  for (const std::string key : checker.arguments) {
    if (key.ends_with("keywords") || key == "forbidden_words") {
      for (const nlohmann::json& one : given.list(key, "a list of texts"))
        if (!one.is_string() || one == "") given.fail(key, "a list of texts");
      arguments[key] = *given.find(key);
    } else if (key.starts_with("num_") || key.ends_with("frequency") || key == "nth_paragraph") {
      arguments[key] = given.integer(key, {.min = key == "nth_paragraph" ? 1 : 0});
    } else {
      const std::string text = given.string(key);
      if (stripped(text).empty()) given.fail(key, "a text");
      if (key.ends_with("relation") && text != "less than" && text != "at least")
        given.fail(key, "\"less than\" or \"at least\"");
      arguments[key] = text;
    }
  }
  return arguments;
}

// Refuses keywords that are no regular expressions, and what is not built in. `where`: they stand there.
void try_out(const VerifiableInstruction& instruction, const std::string& where) {
  try {
    follows(instruction, "A first try.");
  } catch (const NotBuilt&) { throw; } catch (const Error& e) {
    throw FileError(fmt::format("{}: {}: {}", where, instruction.id, e.what()));
  }
}

}  // namespace

std::vector<VerifiableInstruction> read_instructions(const JsonFields& row) {
  const nlohmann::json& ids = row.list("instruction_id_list", "a list of instructions");
  const nlohmann::json& kwargs = row.list("kwargs", "a list of arguments, as long as instruction_id_list");
  if (ids.empty() || ids.size() != kwargs.size())
    row.fail("kwargs", "as many as there are in instruction_id_list, at least one");
  std::vector<VerifiableInstruction> all;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string id = ids[i].is_string() ? ids[i].get<std::string>() : "";
    const Checker* checker = find_checker(id);
    if (checker == nullptr) {
      Texts known;
      for (const Checker& c : checkers()) known.push_back(c.id);
      row.fail("instruction_id_list", fmt::format("instructions among {}", fmt::join(known, ", ")));
    }
    const JsonFields given(kwargs[i], row.where("kwargs"), fmt::format("{}.", i));
    all.push_back({id, judged_arguments(*checker, given)});
    try_out(all.back(), row.where("kwargs"));
    if (const auto language = all.back().arguments.value("language", ""); !language.empty())
      if (const std::string why = why_no_language(language); !why.empty())
        throw FileError(fmt::format("{}: {}", given.where("language"), why));
  }
  return all;
}

bool follows(const VerifiableInstruction& instruction, const std::string& reply) {
  const std::string text = repair_utf8(reply).text;
  if (stripped(text).empty()) return false;
  const Checker* checker = find_checker(instruction.id);
  WEFT_CHECK(checker != nullptr, "{}", instruction.id);
  return checker->check({instruction.arguments}, text);
}

std::vector<std::string> loose_replies(const std::string& reply) {
  const size_t first = reply.find('\n'), last = reply.rfind('\n');
  const std::string headless = first == reply.npos ? "" : stripped(reply.substr(first + 1));
  const std::string tailless = last == reply.npos ? "" : stripped(reply.substr(0, last));
  const std::string neither = first == last ? "" : stripped(reply.substr(first + 1, last - first - 1));
  Texts all = {reply, headless, tailless, neither};
  for (size_t i = 0; i < 4; ++i) {
    std::string plain = all[i];
    std::erase(plain, '*');
    all.push_back(std::move(plain));
  }
  return all;
}

}  // namespace weft
