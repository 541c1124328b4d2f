#include "weft/tokenize/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {
namespace {

constexpr uint32_t kMaxSteps = 200'000'000;  // about a second
constexpr size_t kFirstStack = 32 << 10, kMaxStack = 8 << 20;
constexpr size_t kMaxExpression = 1 << 16;

std::string message_of(int error) {
  PCRE2_UCHAR text[200];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR bytes_of(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct Pattern::Code {
  std::string expression;
  pcre2_code* compiled = nullptr;
  ~Code() { pcre2_code_free(compiled); }
};

Pattern::Pattern(std::string_view expression, const std::string& source) : code_(std::make_unique<Code>()) {
  if (expression.size() > kMaxExpression)
    throw FileError(fmt::format("{}: a regular expression of {} bytes; there may be {}", source, expression.size(),
                                kMaxExpression));
  code_->expression = expression;
  const std::string own = to_pcre2(expression, source);
  int error = 0;
  PCRE2_SIZE where = 0;
  code_->compiled = pcre2_compile(bytes_of(own), own.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error,
                                  &where, nullptr);
  if (code_->compiled == nullptr)
    throw FileError(fmt::format("{}: regular expression {}: {}", source, in_quotes(expression), message_of(error)));
  pcre2_jit_compile(code_->compiled, PCRE2_JIT_COMPLETE);  // where it cannot, the interpreter runs
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

struct Pattern::Search::State {
  pcre2_match_data* match;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
  explicit State(const pcre2_code* code)
      : match(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kFirstStack, kMaxStack, nullptr)) {
    pcre2_set_match_limit(context, kMaxSteps);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
};

Pattern::Search::Search(const Pattern& pattern, std::string_view text)
    : pattern_(pattern), text_(text), state_(std::make_unique<State>(pattern.code_->compiled)) {}
Pattern::Search::~Search() = default;

bool Pattern::Search::next(size_t from, Span& match) {
  const int found = pcre2_match(pattern_.code_->compiled, bytes_of(text_), text_.size(), from, PCRE2_NO_UTF_CHECK,
                                state_->match, state_->context);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0)
    throw Error(
        fmt::format("the tokenizer's regular expression {} gave up at byte {} of a text of {} bytes: {}; cut "
                    "the text into shorter documents",
                    in_quotes(pattern_.code_->expression), from, text_.size(), message_of(found)));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state_->match);
  match = {std::min(ends[0], ends[1]), ends[1]};
  return true;
}

}  // namespace weft
