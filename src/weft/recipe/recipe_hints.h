// For messages: the recipe's names for keys and values of other programs (Megatron, Hugging Face, Axolotl, nanoGPT).
// Recipes do not accept those names.
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
