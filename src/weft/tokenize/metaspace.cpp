#include "weft/tokenize/metaspace.h"

#include "weft/tokenize/bpe.h"
#include "weft/tokenize/split_step.h"

namespace weft {
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

}  // namespace weft
