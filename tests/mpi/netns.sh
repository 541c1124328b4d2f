#!/usr/bin/env bash
# Hosts in one machine: wn0, wn1, ... (10.77.0.1, ...), each a network namespace with a host name of its own, joined by a
# bridge in a namespace of its own. Nothing of them is seen outside; Open MPI takes them for machines. Needs root and ip.
#   netns.sh up N (status 3: there are some already) | down N | exec HOST COMMAND... | rsh HOST COMMAND... | cut HOST | heal HOST | die HOST
set -euo pipefail
space() { case "$1" in 10.77.0.*) echo "wn$((${1##*.} - 1))" ;; *) echo "$1" ;; esac; }
switch="ip -n wnsw"
case "$1" in
up)
  ip netns add wnsw 2>/dev/null || exit "$([[ -e /run/netns/wnsw ]] && echo 3 || echo 1)"
  trap '"$0" down "$2"' ERR
  $switch link add wbr0 type bridge
  $switch link set wbr0 up
  for i in $(seq 0 $(($2 - 1))); do
    ip netns add "wn$i"
    $switch link add "vwn$i" type veth peer name eth0 netns "wn$i"
    $switch link set "vwn$i" master wbr0 up
    ip -n "wn$i" addr add "10.77.0.$((i + 1))/24" dev eth0
    ip -n "wn$i" link set eth0 up
    ip -n "wn$i" link set lo up
  done ;;
down)
  for i in $(seq 0 $(($2 - 1))); do ip netns del "wn$i" 2>/dev/null || true; done
  ip netns del wnsw 2>/dev/null || true ;;
exec) host=$(space "$2"); shift 2
  exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$host" "$@" ;;
rsh) host=$(space "$2"); shift 2  # as mpirun's plm_rsh_agent
  exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec sh -c "$1"' "$host" "$*" ;;
cut) $switch link set "v$(space "$2")" nomaster ;;  # frames vanish, and nobody is told
die) ip netns pids "$(space "$2")" | xargs -r kill -9 ;;  # all processes of the host at once
heal) $switch link set "v$(space "$2")" master wbr0 up ;;
*) sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
