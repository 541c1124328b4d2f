// What the keys and values of other programs' configurations (Megatron's, Hugging Face's, Axolotl's, nanoGPT's) are
// called in a recipe: for messages. Nothing is taken under such a name.
#pragma once
#include <string>

namespace weft {

// "did you mean optimizer.lr?" for "optimizer.learning_rate" or "learning_rate"; empty where the name says nothing.
std::string hint_of_key(const std::string& name);
// "did you mean \"adamw\"? ..." for "adam" as optimizer.name; empty where the value says nothing.
std::string hint_of_value(const std::string& key, const std::string& value);
// `[optimizer] name = "adamw"` for optimizer = "adam"; empty for a section that no single value stands for.
std::string hint_of_section(const std::string& section, const std::string& value);

}  // namespace weft
