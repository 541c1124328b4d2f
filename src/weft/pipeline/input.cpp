#include "weft/pipeline/input.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/not_built.h"

namespace weft {
namespace {
constexpr size_t kPiece = 1 << 18;
}

std::string_view Input::peek(size_t wanted) {
  while (buffer_.size() - at_ < wanted && !ended_) {
    if (at_ > kPiece && at_ > buffer_.size() / 2) {
      buffer_.erase(0, at_);
      at_ = 0;
    }
    const size_t had = buffer_.size();
    buffer_.resize(had + kPiece);
    size_t n = 0;
    try {
      n = stream_->read({buffer_.data() + had, kPiece});
    } catch (const FileError&) { throw; } catch (const NotBuilt&) {
      throw;
    } catch (const Error& e) { failure_ = e.what(); }
    buffer_.resize(had + n);
    ended_ = n == 0;
  }
  return std::string_view(buffer_).substr(at_);
}

void Input::skip(size_t bytes) {
  WEFT_CHECK(bytes <= buffer_.size() - at_, "skips {} bytes of {}", bytes, buffer_.size() - at_);
  at_ += bytes;
  offset_ += int64_t(bytes);
}

size_t Input::find(std::string_view what, size_t from, size_t most) {
  for (;;) {
    std::string_view here = peek(from + what.size());
    const size_t found = here.find(what, from);
    if (found != std::string_view::npos) return found;
    if (here.size() > most) return std::string_view::npos;
    from = std::max(from, here.size() - std::min(here.size(), what.size() - 1));
    const size_t had = here.size();
    if (peek(had + 1).size() == had) return std::string_view::npos;
  }
}

}  // namespace weft
