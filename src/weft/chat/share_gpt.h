// Conversations as ShareGPT's data sets have them.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "weft/chat/value.h"

namespace weft::chat {

// The messages of one conversation, in order: {"from": "human", "value": ...} as {"role": "user", "content": ...}. What
// a function_call says becomes "tool_calls" with ids, by which the observations behind it are known.
class ShareGpt {
 public:
  // Others stay as they are. Throws FileError, beginning with `where`, for a role that is not known and for calls that
  // are none.
  Value renamed(const Value& message, std::string_view where);

 private:
  Value calls_of(const Value& value, std::string_view where);

  int64_t num_calls_ = 0;
  std::deque<std::string> open_;  // ids of calls without an observation
};

// "tools" as a text: a JSON list of tools, or nothing. Functions alone become {"type": "function", "function": ...}, as
// templates take them for granted.
Value tools_of_text(const std::string& text, std::string_view source);

}  // namespace weft::chat
