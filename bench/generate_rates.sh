#!/bin/sh
# How fast text is read and written by two ranks of one thread beside one rank of two threads, in turns, so that what
# else the machine does falls on both: bench/generate_rates.sh WEFT MODEL LAYOUT [ROUNDS [PROMPT_TOKENS [TEXTS]]]
#   bench/generate_rates.sh build/cpu/weft runs/first parallel.tp=2
#   bench/generate_rates.sh build/cpu/weft runs/experts parallel.dp=2,parallel.ep=2 5 512 2
# LAYOUT is one setting or several, with commas or blanks between them. Ranks of dp share the texts out: two or more.
set -eu
weft=$1 model=$2 rounds=${4:-5} tokens=${5:-512} texts=${6:-1}
layout=$(echo "$3" | sed 's/, *\([a-z]\)/ \1/g')  # a comma before a number is of a list
prompts=$(awk -v n="$tokens" -v texts="$texts" 'BEGIN {
  for (t = 0; t < texts; ++t) {
    line = ""
    for (i = 0; i < n; ++i) line = line (i ? "," : "") (i * i * 7 + i * 3 + t) % 251
    print "--prompt-ids " line
  }
}')
rate() {  # "tokens read a second, written a second"
  # shellcheck disable=SC2086
  "$weft" generate "$model" $prompts --ids --temperature 0 --max-tokens 65 --context 4096 --rate "$@" 2>&1 >/dev/null |
    awk '/^read/ {gsub("/s,?", ""); print $5, $9}'
}
for round in $(seq "$rounds"); do
  # shellcheck disable=SC2086
  echo "$(rate --threads 2) $(rate --threads 1 $layout)"
done | awk -v layout="$layout" '
  function median(x, n,   i, j, t) {
    for (i = 2; i <= n; ++i) for (j = i; j > 1 && x[j - 1] > x[j]; --j) { t = x[j]; x[j] = x[j - 1]; x[j - 1] = t }
    return n % 2 ? x[(n + 1) / 2] : (x[n / 2] + x[n / 2 + 1]) / 2
  }
  { ++n; read1[n] = $1; write1[n] = $2; read2[n] = $3; write2[n] = $4; r[n] = $3 / $1; w[n] = $4 / $2 }
  END {
    printf "one rank: read %.0f/s, wrote %.1f/s; %s: read %.0f/s, wrote %.1f/s (medians of %d)\n",
      median(read1, n), median(write1, n), layout, median(read2, n), median(write2, n), n
    printf "median ratio: read %.2f, wrote %.2f\n", median(r, n), median(w, n)
  }'
