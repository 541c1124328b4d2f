#include "weft/forecast/profile.h"

namespace weft {
namespace {

// Fitted by `weft plan score published.csv --fit` from the numbers before; docs/planning.md says how well they do.
constexpr const char* kProfiles = R"(
[[program]]
name = "any program"
products = 0.7817
products8 = 0.8669
products4 = 1.329
attention = 0.2608
attention_backward = 0.4009
memory = 0.7528
newer = 1.102
newer_attention = 0.8144
casts = 0.21
tp_exposed = 0.1483
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.139
reduce_hidden = 1.021
slowdown = 0.2861
network = 1.102
hop_us = 2.554
launch_us = 61.88
action_ms = 0.1632
gain = 0.1737
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "any program with experts"
experts = true
products = 0.3375
products8 = 0.8669
products4 = 1.329
grouped = 1.3
attention = 0.2608
attention_backward = 0.4009
memory = 1.196
newer = 0.8454
newer_attention = 0.8144
casts = 0.21
tp_exposed = 0.1483
ep_exposed = 0.4125
ep_inside = 0.6346
cp_exposed = 0.06285
pp_exposed = 0.6511
gather_hidden = 0.139
reduce_hidden = 1.021
slowdown = 0.2861
network = 1.102
hop_us = 2.554
launch_us = 91.92
action_ms = 0.1632
gain = 0.08454
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "weft"  # from the ops of a step on an H100 (docs/benchmarks), one by one
frameworks = ["weft"]
products = 1
attention = 0.42
attention_backward = 0.19
memory = 0.52
update = 0.75

[[program]]
name = "weft with experts"
frameworks = ["weft"]
experts = true
products = 1
grouped = 0.31
attention = 0.42
attention_backward = 0.19
memory = 0.52
update = 0.75

[[program]]
name = "Megatron-Core"
frameworks = ["megatron-core", "nemo", "megatron-bridge"]
products = 0.9171
products8 = 0.8497
products4 = 1.303
attention = 0.4486
attention_backward = 0.6082
memory = 1.353
newer = 0.9367
newer_attention = 0.735
casts = 0.1965
tp_exposed = 0.2548
cp_exposed = 0.05412
pp_exposed = 0.64
gather_hidden = 0.1456
reduce_hidden = 1.021
slowdown = 0.3137
network = 1.116
hop_us = 3.326
launch_us = 62.24
gap_us = 2.287
action_ms = 0.3847
gain = 0.09702
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "Megatron-Core with experts"
frameworks = ["megatron-core", "nemo", "megatron-bridge"]
experts = true
products = 0.3851
products8 = 0.8497
products4 = 1.303
grouped = 1.3
attention = 0.4486
attention_backward = 0.6082
memory = 1.863
newer = 0.7962
newer_attention = 0.735
casts = 0.1965
tp_exposed = 0.2548
ep_exposed = 0.4125
ep_inside = 0.8272
cp_exposed = 0.05412
pp_exposed = 0.264
gather_hidden = 0.1456
reduce_hidden = 1.021
slowdown = 0.3137
network = 1.116
hop_us = 3.326
launch_us = 91.17
gap_us = 2.284
action_ms = 0.3847
gain = 0.07933
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "Megatron-DeepSpeed"
frameworks = ["megatron-deepspeed"]
products = 0.8281
products8 = 0.8669
products4 = 1.329
attention = 0.1076
attention_backward = 0.1747
memory = 0.8203
newer = 1.102
newer_attention = 0.8144
scores = 1
slices = 1
casts = 0.21
tp_exposed = 0.1344
tp_wait_us = 1237
cp_exposed = 0.06285
pp_exposed = 0.6511
gather_hidden = 0.139
reduce_hidden = 1.021
slowdown = 0.2861
network = 0.5775
hop_us = 2.554
launch_us = 61.88
action_ms = 0.1632
gain = 0.2873
memory_kept = 1.32
memory_part = 0.8706
memory_base = 3.221e+09

[[program]]
name = "Megatron-LM of 2021"
frameworks = ["megatron-lm", "alpa"]
products = 0.7953
products8 = 0.8669
products4 = 1.329
attention = 0.1365
attention_backward = 0.3875
memory = 0.9171
update = 0.974
newer = 1.102
newer_attention = 0.8144
scores = 1
slices = 1
casts = 0.21
tp_exposed = 0.06116
cp_exposed = 0.06285
pp_exposed = 1.035
gather_hidden = 0.2871
reduce_hidden = 1.021
slowdown = 0.118
network = 1.3
hop_us = 0.4188
launch_us = 60.1
gap_us = 4.978
action_ms = 0.1353
gain = 0.1737
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "PyTorch FSDP"
frameworks = ["fsdp", "foundry"]
products = 0.899
products8 = 0.8033
products4 = 1.329
attention = 0.3522
attention_backward = 0.2926
memory = 0.8752
newer = 0.9367
newer_attention = 0.6139
casts = 0.2113
tp_exposed = 0.1483
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.2358
reduce_hidden = 0.8678
slowdown = 0.3719
network = 1.192
hop_us = 16.23
launch_us = 61.88
gap_us = 52.23
action_ms = 0.1632
gain = 0.1737
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "torchtitan"
frameworks = ["torchtitan"]
products = 0.9184
products8 = 0.6339
products4 = 1.329
attention = 0.2901
attention_backward = 0.4588
memory = 0.7431
update = 0.2887
newer = 0.7225
newer_attention = 0.5728
casts = 0.3081
tp_exposed = 0.1498
tp_wait_us = 1053
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.05733
reduce_hidden = 1.021
slowdown = 0.2864
network = 0.7798
hop_us = 2.554
launch_us = 61.88
gap_us = 101.7
action_ms = 0.1632
gain = 0.07165
memory_base = 4.295e+09

[[program]]
name = "InternEvo"
frameworks = ["internevo"]
products = 0.899
products8 = 0.8669
products4 = 1.329
attention = 0.2738
attention_backward = 0.3718
memory = 0.4345
update = 0.4125
newer = 1.102
newer_attention = 0.8144
by_rank = 1
casts = 0.21
tp_exposed = 0.3063
tp_wait_us = 340.4
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.05733
reduce_hidden = 1.267
slowdown = 0.3062
network = 1.3
hop_us = 30.86
launch_us = 61.88
gap_us = 54.56
action_ms = 0.1632
gain = 0.1387
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "nanotron"
frameworks = ["nanotron"]
products = 0.7817
products8 = 0.8669
products4 = 1.329
attention = 0.2608
attention_backward = 0.4009
memory = 0.7528
newer = 1.102
newer_attention = 0.8144
casts = 0.21
tp_exposed = 0.1483
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.139
reduce_hidden = 1.021
slowdown = 0.2861
network = 1.102
hop_us = 2.554
launch_us = 61.88
action_ms = 0.1632
gain = 0.1737
memory_kept = 1.149
memory_part = 1.516

[[program]]
name = "LLMQ"
frameworks = ["llm.q", "llmq", "llm.c"]
products = 0.9866
products8 = 0.8669
products4 = 1.329
attention = 0.4151
attention_backward = 0.4791
memory = 0.9556
newer = 0.9222
newer_attention = 0.3661
casts = 0.2424
tp_exposed = 0.1483
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.2871
reduce_hidden = 1.021
slowdown = 0.1323
network = 1.102
hop_us = 2.554
launch_us = 61.88
action_ms = 0.1633
gain = 0.276
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "Hugging Face Trainer"
frameworks = ["hf trainer", "transformers"]
products = 0.624
products8 = 0.8669
products4 = 1.329
attention = 0.5387
attention_backward = 0.8281
memory = 0.3481
update = 0.2887
newer = 1.102
newer_attention = 0.8144
casts = 0.21
tp_exposed = 0.1483
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.05733
reduce_hidden = 1.021
slowdown = 0.2861
network = 0.8257
hop_us = 2000
launch_us = 55.66
gap_us = 4.748
action_ms = 1.626
gain = 0.1737
memory_part = 2.639
memory_base = 2.147e+09

[[program]]
name = "torchtune"
frameworks = ["torchtune"]
products = 1.016
products8 = 0.8669
products4 = 1.329
attention = 0.5387
attention_backward = 0.3603
memory = 0.7794
update = 1.023
newer = 1.102
newer_attention = 0.8144
casts = 0.21
tp_exposed = 0.1483
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.139
reduce_hidden = 1.021
slowdown = 0.2861
network = 1.102
hop_us = 2.554
launch_us = 61.88
gap_us = 42.5
action_ms = 0.1632
gain = 0.1737
memory_kept = 0.3789
)";

}  // namespace

const Profiles& Profiles::built_in() {
  static const Profiles all = parse(kProfiles, "the built-in profiles");
  return all;
}

}  // namespace weft
