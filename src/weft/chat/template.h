// Chat templates: how a conversation becomes the text that a model was trained on. Jinja as Hugging Face's library sets
// it up: what templates of models use of it, with Python's values (docs/formats/chat_templates.md).
#pragma once
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/chat/value.h"

namespace weft::chat {

struct Span {
  size_t begin, end;  // bytes
};
struct Rendering {
  std::string text{};
  std::vector<Span> generated{};  // what stood in {% generation %}, in order; nothing, too
  bool lost_generated = false;    // some stood in a macro, set or filter, where its place is not known
};

// Immutable; any thread may use it.
class Template {
 public:
  // Throws FileError, beginning with `source`, with the line of what is broken or unknown; NotBuilt in a build that
  // knows no characters.
  Template(std::string_view text, std::string source);
  ~Template();
  Template(Template&&) noexcept;

  // The text for these variables: messages, add_generation_prompt, tools, bos_token, eos_token and what else the
  // template asks for. Throws Error, beginning with the source and the line, where the template refuses them
  // (raise_exception), where it uses what is not there or what weft does not support, or after a bounded number of
  // steps or bytes.
  Rendering render(const Dict& variables) const;

  // Whether it has {% generation %} anywhere.
  bool marks_generated() const;

 private:
  struct Tree;
  std::unique_ptr<Tree> tree_;
};

// strftime_now(format) of a template, for this time.
Value clock_function(const std::tm& now);

}  // namespace weft::chat
