// How a text becomes pieces, of which the model sees each alone.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/tokenize/component.h"
#include "weft/tokenize/pattern.h"
#include "weft/tokenize/splitter.h"

namespace weft {

struct TextPiece {
  std::string_view text;  // not empty
  bool first;             // the document begins with it
};

// A part of a piece that a step splits: what it looks for, or what lies between.
struct PiecePart {
  Span span;
  bool is_match;
};

// The pieces of a text, and the memory that steps take: kept from one text to the next. For one thread.
class Pieces {
 public:
  std::vector<TextPiece> list;
  // Keeps a text until clear().
  std::string_view keep(std::string text) { return kept_.emplace_back(std::move(text)); }
  // Gives up what a long text took.
  void clear();

  // Scratch of the step that runs.
  std::vector<TextPiece> next;
  std::vector<Span> matches;
  std::vector<PiecePart> parts;
  PatternSpace patterns;

 private:
  std::deque<std::string> kept_;
};

// One step: replaces the list by a finer or changed one. Immutable; any thread may call it. Throws Error where a
// regular expression gives up.
using PreTokenizer = std::function<void(Pieces&)>;

// What is done with the matches at which a piece is split.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
// Throws FileError. `fallback`: where the field is absent.
SplitBehavior read_behavior(const Component& c, std::optional<SplitBehavior> fallback = {});

// Lists the matches in a text, in order; none is empty.
using Matcher = std::function<void(std::string_view text, PatternSpace& space, std::vector<Span>& matches)>;
Matcher match_pattern(Pattern pattern);
Matcher match_text(std::string what);
Matcher match_splitter(Splitter splitter);
Matcher match_characters(bool (*is_match)(char32_t));  // each alone

// `invert`: what does not match is the match.
PreTokenizer split_at(Matcher matcher, SplitBehavior behavior, bool invert = false);

// The "pre_tokenizer" of a tokenizer.json.
struct PreTokenizers {
  std::vector<PreTokenizer> steps;
  // Where all of it is one expression that is known by heart, over bytes: instead of the steps.
  std::optional<Splitter> splitter;
  // The last step turns each byte into its character: left out of the steps, for a model of bytes.
  bool to_bytes = false;
};

// Throws FileError for what weft does not know, by name.
PreTokenizers read_pre_tokenizers(const nlohmann::json& pre_tokenizer, const std::string& source,
                                  std::shared_ptr<const CharacterTable> table);

// '▁' for spaces, as SentencePiece has it.
struct Metaspace {
  enum class Prefix { kAlways, kFirst, kNever };
  std::string mark;  // that stands for a space
  Prefix prefix;     // which pieces get one in front
  bool split;        // before each mark
};
// `c` is a pre-tokenizer or a decoder.
Metaspace read_metaspace(const Component& c);

}  // namespace weft
