#include "weft/tokenize/split_step.h"

#include <algorithm>

namespace weft {
namespace {

struct Part {
  Span span;
  bool is_match;
};

// The whole text as matches and what lies between.
std::vector<Part> parts_of(std::string_view text, const std::vector<Span>& matches, bool invert) {
  std::vector<Part> parts;
  size_t done = 0;
  for (const Span& m : matches) {
    if (m.begin > done) parts.push_back({{done, m.begin}, invert});
    parts.push_back({m, !invert});
    done = m.end;
  }
  if (done < text.size()) parts.push_back({{done, text.size()}, invert});
  return parts;
}

// `behind`: each match joins the part before it, else (the text read backwards) the one after it.
void merge_matches(std::vector<Part>& parts) {
  size_t n = 0;
  bool after_match = false;
  for (const Part& p : parts) {
    if (p.is_match && !after_match && n > 0)
      parts[n - 1].span = {std::min(parts[n - 1].span.begin, p.span.begin),
                           std::max(parts[n - 1].span.end, p.span.end)};
    else
      parts[n++] = {p.span, p.is_match};
    after_match = p.is_match;
  }
  parts.resize(n);
}

void merge_alike(std::vector<Part>& parts) {
  size_t n = 0;
  for (const Part& p : parts) {
    if (n > 0 && p.is_match == parts[n - 1].is_match)
      parts[n - 1].span.end = p.span.end;
    else
      parts[n++] = p;
  }
  parts.resize(n);
}

void apply(SplitBehavior behavior, std::vector<Part>& parts) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(parts, [](const Part& p) { return p.is_match; });
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
  return [shared = std::make_shared<Pattern>(std::move(pattern))](std::string_view text, std::vector<Span>& matches) {
    Pattern::Search search(*shared, text);
    Span m;
    for (size_t from = 0; from < text.size() && search.next(from, m);) {
      if (m.size() > 0) matches.push_back(m);
      from = m.end;
      if (m.size() == 0 && from < text.size()) from += first_character(text.substr(from)).bytes;
    }
  };
}

Matcher match_text(std::string what) {
  return [what = std::move(what)](std::string_view text, std::vector<Span>& matches) {
    if (what.empty()) return;
    for (size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; at += what.size())
      matches.push_back({at, at + what.size()});
  };
}

Matcher match_splitter(Splitter splitter) {
  return [splitter](std::string_view text, std::vector<Span>& matches) {
    for (size_t at = 0; at < text.size(); at = matches.back().end)
      matches.push_back({at, splitter.end_of_piece(text, at)});
  };
}

Matcher match_characters(std::function<bool(char32_t)> is_match) {
  return [is_match](std::string_view text, std::vector<Span>& matches) {
    for (size_t at = 0; at < text.size();) {
      const Character c = first_character(text.substr(at));
      if (is_match(c.code)) matches.push_back({at, at + c.bytes});
      at += c.bytes;
    }
  };
}

PreTokenizer split_at(Matcher matcher, SplitBehavior behavior, bool invert) {
  return [=](Pieces& pieces) {
    std::vector<TextPiece> split;
    std::vector<Span> matches;
    for (const TextPiece& piece : pieces.list) {
      matches.clear();
      matcher(piece.text, matches);
      std::vector<Part> parts = parts_of(piece.text, matches, invert);
      apply(behavior, parts);
      for (const Part& p : parts) split.push_back({p.span.of(piece.text), piece.first && p.span.begin == 0});
    }
    pieces.list = std::move(split);
  };
}

}  // namespace weft
