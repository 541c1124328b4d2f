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
tp_exposed = 0.1643
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.139
reduce_hidden = 1.021
slowdown = 0.2861
network = 1.102
hop_us = 2.554
launch_us = 61.88
action_ms = 0.1144
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
memory = 1.555
newer = 0.8453
newer_attention = 0.8144
casts = 0.21
tp_exposed = 0.1643
ep_exposed = 0.4125
ep_inside = 0.6978
cp_exposed = 0.06285
pp_exposed = 0.766
gather_hidden = 0.139
reduce_hidden = 1.021
slowdown = 0.2861
network = 1.102
hop_us = 2.554
launch_us = 88.79
action_ms = 0.1144
gain = 0.1173
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
products = 0.899
products8 = 0.8437
products4 = 1.305
attention = 0.4
attention_backward = 0.632
memory = 1.129
newer = 0.9366
newer_attention = 0.7459
casts = 0.2393
tp_exposed = 0.2514
cp_exposed = 0.03614
pp_exposed = 1.3
gather_hidden = 0.1514
reduce_hidden = 1.021
slowdown = 0.2861
network = 1.3
hop_us = 3.774
launch_us = 61.88
action_ms = 0.1586
gain = 0.07165
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "Megatron-Core with experts"
frameworks = ["megatron-core", "nemo", "megatron-bridge"]
experts = true
products = 0.3882
products8 = 0.8437
products4 = 1.305
grouped = 1.3
attention = 0.4
attention_backward = 0.632
memory = 1.389
newer = 0.7961
newer_attention = 0.7459
casts = 0.2393
tp_exposed = 0.2514
ep_exposed = 0.4432
ep_inside = 0.8008
cp_exposed = 0.03614
pp_exposed = 0.5362
gather_hidden = 0.1514
reduce_hidden = 1.021
slowdown = 0.2861
network = 1.3
hop_us = 3.774
launch_us = 88.79
action_ms = 0.1586
gain = 0.1321
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "Megatron-DeepSpeed"
frameworks = ["megatron-deepspeed"]
products = 0.899
products8 = 0.8669
products4 = 1.329
attention = 0.1076
attention_backward = 0.1683
memory = 0.6165
newer = 1.102
newer_attention = 0.8144
scores = 1
slices = 1
casts = 0.21
tp_exposed = 0.1005
tp_wait_us = 1237
cp_exposed = 0.06285
pp_exposed = 0.766
gather_hidden = 0.139
reduce_hidden = 1.021
slowdown = 0.2861
network = 0.7313
hop_us = 2.554
launch_us = 61.88
gap_us = 19.84
action_ms = 0.1144
gain = 0.229
memory_kept = 1.32
memory_part = 0.8706
memory_base = 3.221e+09

[[program]]
name = "Megatron-LM of 2021"
frameworks = ["megatron-lm", "alpa"]
products = 0.8139
products8 = 0.8669
products4 = 1.329
attention = 0.1306
attention_backward = 0.3693
memory = 0.8718
update = 0.974
newer = 1.102
newer_attention = 0.8144
scores = 1
slices = 1
casts = 0.21
tp_exposed = 0.06777
cp_exposed = 0.06285
pp_exposed = 0.5362
gather_hidden = 0.2871
reduce_hidden = 1.021
slowdown = 0.118
network = 1.3
hop_us = 0.4248
launch_us = 59.27
gap_us = 5.261
action_ms = 0.1144
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
newer = 0.9366
newer_attention = 0.6139
casts = 0.2113
tp_exposed = 0.1643
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.2358
reduce_hidden = 0.868
slowdown = 0.3785
network = 1.192
hop_us = 16.23
launch_us = 61.88
gap_us = 51.34
action_ms = 0.1144
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
attention_backward = 0.4596
memory = 0.7242
update = 0.2887
newer = 0.7224
newer_attention = 0.5728
casts = 0.3081
tp_exposed = 0.1647
tp_wait_us = 1011
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.05733
reduce_hidden = 1.021
slowdown = 0.2952
network = 0.766
hop_us = 2.554
launch_us = 61.88
gap_us = 97.82
action_ms = 0.1144
gain = 0.07165
memory_base = 4.295e+09

[[program]]
name = "InternEvo"
frameworks = ["internevo"]
products = 0.7817
products8 = 0.8669
products4 = 1.329
attention = 0.5387
attention_backward = 0.4007
memory = 1.12
update = 0.5751
newer = 1.102
newer_attention = 0.8144
by_rank = 1
casts = 0.21
tp_exposed = 0.3045
tp_wait_us = 340.4
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.1017
reduce_hidden = 1.243
slowdown = 0.2101
network = 1.275
hop_us = 229.2
launch_us = 61.88
gap_us = 19.86
action_ms = 0.1144
gain = 0.1727
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
tp_exposed = 0.1643
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.139
reduce_hidden = 1.021
slowdown = 0.2861
network = 1.102
hop_us = 2.554
launch_us = 61.88
action_ms = 0.1144
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
newer = 0.922
newer_attention = 0.3661
casts = 0.2381
tp_exposed = 0.1643
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.2871
reduce_hidden = 1.021
slowdown = 0.1419
network = 1.102
hop_us = 2.554
launch_us = 61.88
action_ms = 0.1144
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
tp_exposed = 0.1643
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.05733
reduce_hidden = 1.021
slowdown = 0.2861
network = 0.8257
hop_us = 2000
launch_us = 55.66
gap_us = 4.748
action_ms = 1.601
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
tp_exposed = 0.1643
cp_exposed = 0.06285
pp_exposed = 1.3
gather_hidden = 0.139
reduce_hidden = 1.021
slowdown = 0.2861
network = 1.102
hop_us = 2.554
launch_us = 61.88
gap_us = 42.5
action_ms = 0.1144
gain = 0.1737
memory_kept = 0.3789
)";

}  // namespace

const Profiles& Profiles::built_in() {
  static const Profiles all = parse(kProfiles, "the built-in profiles");
  return all;
}

}  // namespace weft
