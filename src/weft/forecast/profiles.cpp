#include "weft/forecast/profile.h"

namespace weft {
namespace {

// Fitted by `weft plan score published.csv --fit`; docs/planning.md says how well they do.
constexpr const char* kProfiles = R"(
[[program]]
name = "any program"

[[program]]
name = "any program with experts"
experts = true

[[program]]
name = "weft"  # from the ops of a step on an H100 (docs/benchmarks), one by one
frameworks = ["weft"]
products = 1.0
attention = 0.42
attention_backward = 0.19
memory = 0.52
update = 0.75

[[program]]
name = "weft with experts"
frameworks = ["weft"]
experts = true
products = 1.0
grouped = 0.31
attention = 0.42
attention_backward = 0.19
memory = 0.52
update = 0.75

[[program]]
name = "Megatron-Core"
frameworks = ["megatron-core", "nemo", "megatron-bridge"]

[[program]]
name = "Megatron-Core with experts"
frameworks = ["megatron-core", "nemo", "megatron-bridge"]
experts = true

[[program]]
name = "Megatron-DeepSpeed"
frameworks = ["megatron-deepspeed"]
fixed = ["scores"]
scores = 1

[[program]]
name = "Megatron-LM of 2021"
frameworks = ["megatron-lm", "alpa"]
fixed = ["scores"]
scores = 1

[[program]]
name = "PyTorch FSDP"
frameworks = ["fsdp", "foundry"]

[[program]]
name = "torchtitan"
frameworks = ["torchtitan"]

[[program]]
name = "InternEvo"
frameworks = ["internevo"]

[[program]]
name = "nanotron"
frameworks = ["nanotron"]

[[program]]
name = "LLMQ"
frameworks = ["llm.q", "llmq", "llm.c"]

[[program]]
name = "Hugging Face Trainer"
frameworks = ["hf trainer", "transformers"]

[[program]]
name = "torchtune"
frameworks = ["torchtune"]
)";

}  // namespace

const Profiles& Profiles::built_in() {
  static const Profiles all = parse(kProfiles, "the built-in profiles");
  return all;
}

}  // namespace weft
