#!/usr/bin/env bash
# How much of data parallel's communication is hidden between two hosts with a slow link, made on this machine as network
# namespaces (as root; needs ip and tc of iproute2):
#   bench/two_hosts.sh [MBIT [weft bench scaling's arguments ...]]
#   bench/two_hosts.sh MBIT machine|forecast [arguments of that weft bench ...]
# MBIT of the link each way, 1000 by default. Each host has one rank of one thread.
set -euo pipefail
cd "$(dirname "$0")/.."
mbit=${1:-1000}
shift || true
arguments=("$@")
if [[ ${#arguments[@]} -eq 0 ]]; then
  arguments=(bench/llama-8x512.toml train.global_batch_size=8 train.micro_batch_size=4 --iters=2
    --layouts dp=2 dp=2,zero_stage=1 dp=2,zero_stage=3)
fi
case "${arguments[0]}" in
  machine) words=(machine --threads 1 "${arguments[@]:1}") ;;
  forecast) words=(forecast "${arguments[1]}" run.ranks=mpi run.threads=1 "${arguments[@]:2}") ;;
  *) words=(scaling "${arguments[0]}" run.ranks=mpi run.threads=1 "${arguments[@]:1}") ;;
esac
weft=${WEFT:-build/cpu/weft}
here=tests/mpi
$here/netns.sh up 2
hosts=$(mktemp)
trap '$here/netns.sh down 2; rm -f "$hosts"' EXIT
printf '10.77.0.1 slots=1\n10.77.0.2 slots=1\n' >"$hosts"
for host in wn0 wn1; do
  ip netns exec $host tc qdisc replace dev eth0 root tbf rate "${mbit}mbit" burst 128k latency 200ms
done
root=()
[[ $(id -u) -ne 0 ]] || root=(--allow-run-as-root)
$here/netns.sh exec wn0 mpirun -q "${root[@]}" -n 2 --map-by node --bind-to none --hostfile "$hosts" \
  --mca plm_rsh_agent "$PWD/$here/netns_rsh" --mca btl tcp,self \
  --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
  "$(realpath "$weft")" bench "${words[@]}"
