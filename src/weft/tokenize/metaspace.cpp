#include "weft/tokenize/metaspace.h"

#include "weft/tokenize/bpe.h"
#include "weft/tokenize/split_step.h"

namespace weft {
namespace {

std::string marked(std::string_view text, const std::string& mark) {
  std::string out;
  for (char c : text) {
    if (c == ' ')
      out += mark;
    else
      out += c;
  }
  return out;
}

Matcher match_mark(std::string mark) {
  return [mark](std::string_view text, std::vector<Span>& matches) {
    for (size_t at = 0; (at = text.find(mark, at)) != std::string_view::npos; at += mark.size())
      matches.push_back({at, at + mark.size()});
  };
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

PreTokenizer metaspace_step(Metaspace m) {
  const auto split = split_at(match_mark(m.mark), SplitBehavior::kMergedWithNext);
  return [m, split](Pieces& pieces) {
    for (TextPiece& p : pieces.list) {
      std::string text = marked(p.text, m.mark);
      const bool wanted = m.prefix == Metaspace::Prefix::kAlways || (m.prefix == Metaspace::Prefix::kFirst && p.first);
      if (wanted && !text.starts_with(m.mark)) text = m.mark + text;
      p.text = pieces.keep(std::move(text));
    }
    if (m.split) split(pieces);
  };
}

}  // namespace weft
