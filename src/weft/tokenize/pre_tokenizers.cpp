#include "weft/tokenize/pre_tokenizers.h"

#include <algorithm>
#include <array>

#include "weft/tokenize/bpe.h"
#include "weft/tokenize/byte_alphabet.h"
#include "weft/tokenize/spares.h"

namespace weft {
namespace {

// Divides the whole text into matches and the parts between them.
void parts_of(std::string_view text, const std::vector<Span>& matches, bool invert, std::vector<PiecePart>& parts) {
  parts.clear();
  size_t done = 0;
  for (const Span& m : matches) {
    if (m.begin > done) parts.push_back({{done, m.begin}, invert});
    parts.push_back({m, !invert});
    done = m.end;
  }
  if (done < text.size()) parts.push_back({{done, text.size()}, invert});
}

// `behind`: each match joins the part before it, else (the text read backwards) the one after it.
void merge_matches(std::vector<PiecePart>& parts) {
  size_t n = 0;
  bool after_match = false;
  for (const PiecePart& p : parts) {
    if (p.is_match && !after_match && n > 0)
      parts[n - 1].span = {std::min(parts[n - 1].span.begin, p.span.begin),
                           std::max(parts[n - 1].span.end, p.span.end)};
    else
      parts[n++] = {p.span, p.is_match};
    after_match = p.is_match;
  }
  parts.resize(n);
}

void merge_alike(std::vector<PiecePart>& parts) {
  size_t n = 0;
  for (const PiecePart& p : parts) {
    if (n > 0 && p.is_match == parts[n - 1].is_match)
      parts[n - 1].span.end = p.span.end;
    else
      parts[n++] = p;
  }
  parts.resize(n);
}

void apply(SplitBehavior behavior, std::vector<PiecePart>& parts) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(parts, [](const PiecePart& p) { return p.is_match; });
      return;
    case SplitBehavior::kMergedWithPrevious:
      return merge_matches(parts);
    case SplitBehavior::kContiguous:
      return merge_alike(parts);
    case SplitBehavior::kMergedWithNext:
      std::reverse(parts.begin(), parts.end());
      merge_matches(parts);
      std::reverse(parts.begin(), parts.end());
  }
}

}  // namespace

SplitBehavior read_behavior(const Component& c, std::optional<SplitBehavior> fallback) {
  const JsonFields f = c.fields();
  if (fallback && !f.has("behavior")) return *fallback;
  const std::string name = f.string("behavior");
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  f.fail("behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

Matcher match_pattern(Pattern pattern) {
  return [shared = std::make_shared<Pattern>(std::move(pattern))](std::string_view text, PatternSpace& space,
                                                                  std::vector<Span>& matches) {
    Span m;
    for (size_t from = 0; from < text.size() && shared->find(text, from, space, m);) {
      if (m.size() > 0) matches.push_back(m);
      from = m.end;
      if (m.size() == 0 && from < text.size()) from += first_character(text.substr(from)).bytes;
    }
  };
}

Matcher match_text(std::string what) {
  return [what = std::move(what)](std::string_view text, PatternSpace&, std::vector<Span>& matches) {
    if (what.empty()) return;
    for (size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; at += what.size())
      matches.push_back({at, at + what.size()});
  };
}

Matcher match_splitter(Splitter splitter) {
  return [splitter](std::string_view text, PatternSpace&, std::vector<Span>& matches) {
    for (size_t at = 0; at < text.size(); at = matches.back().end)
      matches.push_back({at, splitter.end_of_piece(text, at)});
  };
}

Matcher match_characters(bool (*is_match)(char32_t)) {
  std::array<bool, 128> ascii{};
  for (char32_t c = 0; c < ascii.size(); ++c) ascii[c] = is_match(c);
  return [is_match, ascii](std::string_view text, PatternSpace&, std::vector<Span>& matches) {
    for (size_t at = 0; at < text.size();) {
      if (const auto byte = uint8_t(text[at]); byte < ascii.size()) {
        if (ascii[byte]) matches.push_back({at, at + 1});
        ++at;
        continue;
      }
      const Character c = first_character(text.substr(at));
      if (is_match(c.code)) matches.push_back({at, at + c.bytes});
      at += c.bytes;
    }
  };
}

// A piece is searched alone, so that an expression sees its ends (^, \b, what it looks ahead or behind for), as in
// Hugging Face's own program.
PreTokenizer split_at(Matcher matcher, SplitBehavior behavior, bool invert) {
  return [=](Pieces& pieces) {
    pieces.next.clear();
    for (const TextPiece& piece : pieces.list) {
      pieces.matches.clear();
      matcher(piece.text, pieces.patterns, pieces.matches);
      parts_of(piece.text, pieces.matches, invert, pieces.parts);
      apply(behavior, pieces.parts);
      for (const PiecePart& p : pieces.parts)
        pieces.next.push_back({p.span.of(piece.text), piece.first && p.span.begin == 0});
    }
    pieces.list.swap(pieces.next);
  };
}

namespace {

std::string marked(std::string_view text, std::string_view begin, const std::string& mark) {
  std::string out;
  out.reserve(begin.size() + text.size() + text.size() / 2);
  out += begin;
  for (size_t at; (at = text.find(' ')) != std::string_view::npos; text.remove_prefix(at + 1))
    (out += text.substr(0, at)) += mark;
  return out += text;
}

}  // namespace

Metaspace read_metaspace(const Component& c) {
  const JsonFields f = c.fields();
  const bool adds = f.flag("add_prefix_space", true);  // of files before there was a prepend_scheme
  const std::string scheme = f.string("prepend_scheme", adds ? "always" : "never");
  Metaspace m{.mark = f.string("replacement", std::string(kBlank)),
              .prefix = Metaspace::Prefix::kAlways,
              .split = f.flag("split", true)};
  if (m.mark.empty()) f.fail("replacement", "one character");
  if (scheme == "first")
    m.prefix = Metaspace::Prefix::kFirst;
  else if (scheme == "never")
    m.prefix = Metaspace::Prefix::kNever;
  else if (scheme != "always")
    f.fail("prepend_scheme", "always, first or never");
  return m;
}

namespace {

PreTokenizer metaspace_step(Metaspace m) {
  const auto split = split_at(match_text(m.mark), SplitBehavior::kMergedWithNext);
  return [m, split](Pieces& pieces) {
    for (TextPiece& p : pieces.list) {
      const bool wanted = m.prefix == Metaspace::Prefix::kAlways || (m.prefix == Metaspace::Prefix::kFirst && p.first);
      const bool has_one = p.text.starts_with(' ') || p.text.starts_with(m.mark);
      p.text = pieces.keep(marked(p.text, wanted && !has_one ? m.mark : "", m.mark));
    }
    if (m.split) split(pieces);
  };
}

using Table = std::shared_ptr<const CharacterTable>;

constexpr const char* kKnownPreTokenizers =
    "ByteLevel, Split, Metaspace, Whitespace, WhitespaceSplit, BertPreTokenizer, Punctuation, Digits, "
    "CharDelimiterSplit, FixedLength, Sequence";

// Each piece that does not begin with `what` gets it in front.
PreTokenizer prefix_space() {
  return [](Pieces& pieces) {
    for (TextPiece& p : pieces.list)
      if (!p.text.starts_with(' ')) p.text = pieces.keep(" " + std::string(p.text));
  };
}

PreTokenizer to_byte_alphabet() {
  return [alphabet = ByteAlphabet()](Pieces& pieces) {
    for (TextPiece& p : pieces.list) p.text = pieces.keep(alphabet.to_text(p.text));
  };
}

bool is_ascii_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}
bool is_any_punctuation(char32_t c) { return is_ascii_punctuation(c) || is_punctuation(c); }

// An expression: by hand where it is known by heart, else by PCRE2.
Matcher matcher_of(const PatternText& what, const std::string& source, const Table& table) {
  if (!what.is_regex) return match_text(what.text);
  if (const auto rules = Splitter::rules_of(what.text)) return match_splitter(Splitter(*rules, table));
  return match_pattern(Pattern(what.text, source));
}

PreTokenizer fixed_length(int64_t length) {
  return [length](Pieces& pieces) {
    pieces.next.clear();
    for (const TextPiece& p : pieces.list) {
      size_t begin = 0, at = 0;
      for (int64_t n = 1; at < p.text.size(); ++n) {
        at += first_character(p.text.substr(at)).bytes;
        if (n % length != 0 && at < p.text.size()) continue;
        pieces.next.push_back({p.text.substr(begin, at - begin), p.first && begin == 0});
        begin = at;
      }
    }
    pieces.list.swap(pieces.next);
  };
}

void byte_level(const JsonFields& f, const Table& table, std::vector<PreTokenizer>& steps) {
  if (f.flag("add_prefix_space", true)) steps.push_back(prefix_space());
  if (f.flag("use_regex", true))
    steps.push_back(
        split_at(match_splitter(Splitter(*Splitter::rules_named("r50k"), table)), SplitBehavior::kIsolated));
}

void read_one(const Component& c, const Table& table, std::vector<PreTokenizer>& steps) {
  const std::string type = c.type();
  const JsonFields f = c.fields();
  for (const char* name : {"BertPreTokenizer", "Punctuation", "Digits"})
    if (type == name) need_unicode(fmt::format("{}: {}", c.source, type));
  const auto add = [&](Matcher m, SplitBehavior b, bool invert = false) { steps.push_back(split_at(m, b, invert)); };
  if (type == "ByteLevel") {
    byte_level(f, table, steps);
  } else if (type == "Split") {
    add(matcher_of(read_pattern(c), c.source, table), read_behavior(c), f.flag("invert", false));
  } else if (type == "Metaspace") {
    steps.push_back(metaspace_step(read_metaspace(c)));
  } else if (type == "Whitespace") {
    add(match_pattern(Pattern("\\w+|[^\\w\\s]+", c.source)), SplitBehavior::kRemoved, true);
  } else if (type == "WhitespaceSplit") {
    add(match_characters(is_white_space), SplitBehavior::kRemoved);
  } else if (type == "BertPreTokenizer") {
    add(match_characters(is_white_space), SplitBehavior::kRemoved);
    add(match_characters(is_any_punctuation), SplitBehavior::kIsolated);
  } else if (type == "Punctuation") {
    add(match_characters(is_any_punctuation), read_behavior(c, SplitBehavior::kIsolated));
  } else if (type == "Digits") {
    add(match_characters(is_number),
        f.flag("individual_digits", false) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  } else if (type == "CharDelimiterSplit") {
    add(match_text(f.string("delimiter")), SplitBehavior::kRemoved);
  } else if (type == "FixedLength") {
    steps.push_back(fixed_length(f.integer("length", {1, 1 << 20}, 5)));
  } else {
    c.fail_unknown(kKnownPreTokenizers);
  }
}

// The rules, where the components are one known expression and the bytes.
std::optional<Splitter::Rules> known_by_heart(const std::vector<Component>& parts) {
  if (parts.empty() || parts.back().type() != "ByteLevel") return {};
  const JsonFields last = parts.back().fields();
  if (last.flag("add_prefix_space", true)) return {};
  if (parts.size() == 1 && last.flag("use_regex", true)) return Splitter::rules_named("r50k");
  if (parts.size() != 2 || last.flag("use_regex", true) || parts[0].type() != "Split") return {};
  const PatternText what = read_pattern(parts[0]);
  const bool invert = parts[0].fields().flag("invert", false);
  if (read_behavior(parts[0]) != (invert ? SplitBehavior::kRemoved : SplitBehavior::kIsolated)) return {};
  return what.is_regex ? Splitter::rules_of(what.text) : std::nullopt;
}

}  // namespace

void Pieces::clear() {
  constexpr size_t kMost = 1 << 20;
  list.clear();
  kept_.clear();
  give_up_above(kMost, list);
  give_up_above(kMost, next);
  give_up_above(kMost, matches);
  give_up_above(kMost, parts);
}

PreTokenizers read_pre_tokenizers(const nlohmann::json& pre_tokenizer, const std::string& source,
                                  std::shared_ptr<const CharacterTable> table) {
  std::vector<Component> parts;
  for_each_component({pre_tokenizer, source + ": pre_tokenizer"}, "pretokenizers",
                     [&](const Component& c) { parts.push_back(c); });
  PreTokenizers all;
  for (size_t i = 0; i < parts.size(); ++i) {
    read_one(parts[i], table, all.steps);
    if (parts[i].type() != "ByteLevel") continue;
    all.to_bytes = i + 1 == parts.size();
    if (!all.to_bytes) all.steps.push_back(to_byte_alphabet());
  }
  if (const auto rules = known_by_heart(parts)) all.splitter.emplace(*rules, table);
  return all;
}

}  // namespace weft
