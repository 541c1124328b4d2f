// Chat templates that weft knows by name: those that models were published with.
#pragma once
#include <string>
#include <string_view>

namespace weft::chat {

struct BuiltInTemplate {
  std::string_view name, text;
  std::string_view bos, eos;  // of the models it is from, for a tokenizer that has neither; may be empty
};
// nullptr: there is none of this name.
const BuiltInTemplate* built_in_template(std::string_view name);
// "chatml, llama-3, ..."
std::string built_in_template_names();

}  // namespace weft::chat
