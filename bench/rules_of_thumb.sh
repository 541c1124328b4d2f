#!/usr/bin/env bash
# Prints the forecasts of docs/planning.md, "Questions that are often asked".
#   bench/rules_of_thumb.sh CONFIGS [WEFT]      CONFIGS: a folder with llama-3-8b.json, llama-3-70b.json, llama-2-7b.json and
#                                               mixtral-8x7b.json, each the model's config.json. About five minutes.
set -euo pipefail
configs=$(realpath "${1:?which folder has the configs?}")
weft=$(realpath "${2:-build/cpu/weft}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for model in llama-3-8b llama-3-70b llama-2-7b mixtral-8x7b; do
  mkdir "$model"
  cp "$configs/$model.json" "$model/config.json"
done
cat >r.toml <<'TOML'
[model]
path = "llama-3-8b"
init = "random"
[data]
train = ["synthetic"]
[train]
seq_length = 8192
global_batch_size = 128
micro_batch_size = 1
precision = "bf16"
train_iters = 1000
[optimizer]
lr = 1e-4
[run]
dir = "run"
TOML
cluster() { printf 'preset = "H100-SXM"\n[scale_up]\ngb_s = %s\n[scale_out]\ngb_s = %s\n' "$2" "$3" >"$1.toml"; }
cluster pcie 25 12.5
for g in 3.125 6.25 12.5 25 50; do cluster "net$g" 450 "$g"; done

figures() { grep -E '^  (step|tokens/s|memory of)' || true; }
say() { printf '\n== %s\n' "$1"; }
plan() {  # what, cluster, settings
  say "$1: $2 ${*:3}"
  "$weft" plan r.toml "${@:3}" --cluster "$2" | figures
}
search() {  # what, cluster, ranks, settings
  say "$1: search on $3 $2 ${*:4}"
  "$weft" plan r.toml "${@:4}" --cluster "$2" --search --ranks "$3" 2>&1 | grep -A7 -E '^the best|comes nearest' || true
}
z3=(parallel.zero_stage=3)
big=(model.path=llama-3-70b)
tuned=("${big[@]}" train.seq_length=2048 train.global_batch_size=8 adapter.rank=16 parallel.recompute=full "${z3[@]}")
for n in 16 24 32; do search "70B, all weights" H100-SXM "$n" "${big[@]}" train.global_batch_size=96; done
for n in 2 4; do plan "70B" H100-SXM "${tuned[@]}" adapter.kind=lora "parallel.dp=$n"; done
plan "70B" H100-SXM "${tuned[@]}" adapter.kind=qlora parallel.dp=1
seven=(model.path=llama-2-7b train.seq_length=4096 train.global_batch_size=1024 train.micro_batch_size=2 parallel.dp=64 "${z3[@]}")
plan "hours of a 7B" A100-SXM-80GB "${seven[@]}"
plan "hours of a 7B" H100-SXM "${seven[@]}"
search "hours of a 70B" H100-SXM 1024 "${big[@]}" train.global_batch_size=1024
for z in 0 1 2 3; do plan "FSDP" H100-SXM parallel.dp=8 "parallel.zero_stage=$z" parallel.recompute=selective; done
search "ND" H100-SXM 8
for c in H100-SXM pcie.toml; do
  plan "PCIe" "$c" parallel.dp=8 "${z3[@]}"
  plan "PCIe" "$c" parallel.tp=8
  search "PCIe" "$c" 8
done
for g in 3.125 6.25 12.5 25 50; do
  plan "network" "net$g.toml" parallel.dp=64 "${z3[@]}" train.global_batch_size=256
  plan "network" "net$g.toml" parallel.dp=64 parallel.zero_stage=1 parallel.recompute=full train.global_batch_size=256
done
say "scaling"
"$weft" plan r.toml parallel.dp=8 "${z3[@]}" train.global_batch_size=512 --cluster H100-SXM --scale 8..4096 | grep -A12 '^with more'
for n in 64 1024 2048; do search "which axis" H100-SXM "$n" train.global_batch_size=512; done
search "which axis" H100-SXM 64 train.seq_length=131072 train.global_batch_size=32
search "which axis" H100-SXM 64 model.path=mixtral-8x7b train.seq_length=4096 train.global_batch_size=512 moe.capacity_factor=1.5 moe.overflow=drop
axis() {  # settings
  say "what an axis costs: $*"
  "$weft" plan r.toml "$@" train.global_batch_size=64 --cluster H100-SXM |
    sed -n '/^communication/,/^total/p; /where the step/,$p' | grep -E '^total|exposed|slowed|bubble|  products'
}
axis parallel.dp=8 parallel.zero_stage=1 parallel.recompute=full
axis parallel.dp=8 "${z3[@]}"
axis parallel.tp=8
axis parallel.cp=8 "${z3[@]}"
axis parallel.pp=8
