#include "weft/chat/template.h"

#include <algorithm>

#include "weft/chat/arguments.h"
#include "weft/chat/renderer.h"
#include "weft/chat/syntax.h"
#include "weft/tokenize/unicode.h"

namespace weft::chat {
namespace {

bool has_generation(const Body& body) {
  return std::any_of(body.begin(), body.end(), [](const NodePtr& n) {
    return n->kind == Node::Kind::kGeneration || has_generation(n->body) || has_generation(n->other);
  });
}

}  // namespace

struct Template::Tree {
  std::string source;
  Body body;
  bool marks_generated;
};

Template::Template(std::string_view text, std::string source) : tree_(std::make_unique<Tree>()) {
  need_unicode(source);
  tree_->source = std::move(source);
  tree_->body = parse(tokens_of(text, tree_->source), tree_->source);
  tree_->marks_generated = has_generation(tree_->body);
}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;

Rendering Template::render(const Dict& variables) const {
  Renderer renderer(variables);
  try {
    return renderer.run(tree_->body);
  } catch (const Error& e) { throw Error(fmt::format("{}: line {}: {}", tree_->source, renderer.line(), e.what())); }
}

bool Template::marks_generated() const { return tree_->marks_generated; }

Value clock_function(const std::tm& now) {
  return make_function("strftime_now", [now](const Arguments& a) -> Value {
    const std::string& format = Given("strftime_now", "format", a).string(0);
    char text[1024];
    if (format.empty()) return "";
    const size_t bytes = std::strftime(text, sizeof(text), format.c_str(), &now);
    if (bytes == 0) fail("strftime_now: the date is too long");
    return std::string(text, bytes);
  });
}

}  // namespace weft::chat
