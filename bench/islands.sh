#!/usr/bin/env bash
# Islands beside synchronous training, on equally many tokens of real text:
#   bench/islands.sh [STEPS [SYNC_EVERY [settings, as islands.fragments=2 islands.wire_precision=bf16 ...]]]
# Trains the quickstart's model on its text (run ./quickstart once before), one after the other: synchronously for STEPS
# steps of 8 sequences, and for STEPS / n steps of 8 n sequences, as n data parallel ranks would; and 1, 2 and 4 islands,
# of STEPS / n steps each, which exchange weights every SYNC_EVERY steps by DiLoCo, all on this host. Islands have batches
# of 8 sequences too: all train as many tokens as the one run, and n islands as many at once as n ranks.
# Each has one thread. Prints the held-out loss, and the bytes that an island has sent for each of its tokens.
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-1000} every=${2:-25}
shift $(($# < 2 ? $# : 2))
weft=${WEFT:-build/cpu/weft}
text=runs/quickstart
[[ -f $text/valid.txt && -f $text/tokenizer/tokenizer.json ]] || { echo "run ./quickstart first: it makes $text" >&2; exit 1; }
if ((steps % (4 * every) != 0)); then
  echo "STEPS must be a multiple of 4 x SYNC_EVERY = $((4 * every))" >&2
  exit 2
fi
out=$(mktemp -d runs/islands-bench-XXXXXX)
hub=
trap '[[ -z $hub ]] || kill "$hub" 2>/dev/null || true' EXIT
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$out/secret")
port=$((20000 + $$ % 20000))
common=(examples/quickstart.toml parallel.dp=1 parallel.tp=1 run.threads=1 checkpoint.save_interval=0)

# The last held-out loss of a run, and the bytes of its last exchange's record.
losses() { grep -o '"eval":{"loss":[0-9.e-]*' "$1/metrics.jsonl" | tail -n 1 | sed 's/.*://'; }
sent() { { grep -o '"island_bytes_sent_per_token":[0-9.e+-]*' "$1/metrics.jsonl" || echo :0; } | tail -n 1 | sed 's/.*://'; }

echo "in $out"
printf '%-12s %-10s %-14s %s\n' run 'steps x of' 'held-out loss' 'bytes sent/token'
for n in 1 2 4; do
  "$weft" train "${common[@]}" train.train_iters=$((steps / n)) train.eval_interval=0 train.global_batch_size=$((8 * n)) \
    optimizer.lr_warmup_iters=$((50 / n)) run.dir="$out/sync-$n" >"$out/sync-$n.log" 2>&1
  printf '%-12s %-10s %-14s %s\n' synchronous "$((steps / n)) x $((8 * n))" "$(losses "$out/sync-$n")" 0
done
for n in 1 2 4; do
  of_n=("${common[@]}" train.train_iters=$((steps / n)) train.eval_interval=0 optimizer.lr_warmup_iters=$((50 / n))
    islands.count=$n islands.address=127.0.0.1:$port islands.secret_file="$out/secret" islands.sync_every="$every"
    islands.timeout_seconds=300 "$@")
  "$weft" islands "${of_n[@]}" >"$out/hub-$n.log" 2>&1 &
  hub=$!
  islands=()
  for ((k = 0; k < n; k++)); do
    "$weft" train "${of_n[@]}" islands.number=$k run.dir="$out/$n-$k" >"$out/$n-$k.log" 2>&1 &
    islands+=($!)
  done
  for island in "${islands[@]}"; do wait "$island"; done
  wait "$hub"
  hub=
  printf '%-12s %-10s %-14s %s\n' "$n islands" "$((steps / n)) x $((8 * n))" "$(losses "$out/$n-0")" "$(sent "$out/$n-0")"
  port=$((port + 1))
done
