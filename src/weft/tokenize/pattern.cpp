#include "weft/tokenize/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <new>

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
  bool is_machine_code = false;  // else PCRE2 interprets it
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
  code_->is_machine_code = pcre2_jit_compile(code_->compiled, PCRE2_JIT_COMPLETE) == 0;
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

struct PatternSpace::State {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);  // of groups, nothing is asked
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kFirstStack, kMaxStack, nullptr);
  State() {
    if (match == nullptr || context == nullptr || stack == nullptr) {
      release();
      throw std::bad_alloc();
    }
    pcre2_set_match_limit(context, kMaxSteps);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() { release(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  void release() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
};

PatternSpace::PatternSpace() = default;
PatternSpace::~PatternSpace() = default;
PatternSpace::PatternSpace(PatternSpace&&) noexcept = default;
PatternSpace& PatternSpace::operator=(PatternSpace&&) noexcept = default;

PatternSpace::State& PatternSpace::state() {
  if (!state_) state_ = std::make_unique<State>();
  return *state_;
}

bool Pattern::find(std::string_view text, size_t from, PatternSpace& space, Span& match) const {
  const PatternSpace::State& s = space.state();
  const int found =
      code_->is_machine_code
          ? pcre2_jit_match(code_->compiled, bytes_of(text), text.size(), from, 0, s.match, s.context)
          : pcre2_match(code_->compiled, bytes_of(text), text.size(), from, PCRE2_NO_UTF_CHECK, s.match, s.context);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0)
    throw Error(
        fmt::format("the tokenizer's regular expression {} gave up at byte {} of a text of {} bytes: {}; cut "
                    "the text into shorter documents",
                    in_quotes(code_->expression), from, text.size(), message_of(found)));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(s.match);
  match = {std::min(ends[0], ends[1]), ends[1]};
  return true;
}

}  // namespace weft
