// The instructions of IFEval that a program can check (Zhou et al. 2023).
#pragma once
#include <string>
#include <vector>

#include "weft/base/json.h"

namespace weft {

struct VerifiableInstruction {
  std::string id;  // "punctuation:no_comma"
  nlohmann::json arguments = nlohmann::json::object();
};
// Reads "instruction_id_list" and "kwargs" of a row. Throws FileError: an instruction that there is not, an argument
// that is missing or wrong, a language that is not known; NotBuilt where this build tells no languages.
std::vector<VerifiableInstruction> read_instructions(const JsonFields& row);
// Whether a reply does so; an empty one does nothing.
bool follows(const VerifiableInstruction& instruction, const std::string& reply);
// The reply, and without its first line, its last, both, each also without asterisks: one of them may do so.
std::vector<std::string> loose_replies(const std::string& reply);

}  // namespace weft
