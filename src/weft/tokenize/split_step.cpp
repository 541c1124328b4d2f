#include "weft/tokenize/split_step.h"

#include <algorithm>
#include <array>

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

}  // namespace weft
