#!/usr/bin/env bash
# Single-host Slurm 22.05 on Debian bookworm, no systemd, running as root.
#   packages: munge slurmctld slurmd slurm-client
#   slurm_local.sh start | stop | status
# Everything lives in $SLURM_BASE, so that a test can throw it away. CPUS may be more than the cores there are.
set -euo pipefail
B=${SLURM_BASE:-/tmp/weft-slurm}; H=$(hostname -s); CPUS=${CPUS:-8}; MEM=${MEM:-8000}
export SLURM_CONF=$B/slurm.conf
case "${1:-}" in
start)
  mkdir -p "$B"/{state,spool,log,run}
  # --- munge (auth). Needs /run/munge 0755 owned by munge, key 0600 owned by munge.
  install -d -o munge -g munge -m 0755 /run/munge
  install -d -o munge -g munge -m 0700 /var/log/munge /var/lib/munge /etc/munge
  [ -s /etc/munge/munge.key ] || { dd if=/dev/urandom bs=1 count=1024 of=/etc/munge/munge.key status=none; chown munge:munge /etc/munge/munge.key; chmod 0600 /etc/munge/munge.key; }
  [ -S /run/munge/munge.socket.2 ] && munge -n 2>/dev/null | unmunge >/dev/null 2>&1 ||
    { setpriv --reuid=munge --regid=munge --clear-groups /usr/sbin/munged; touch "$B/run/munged_is_ours"; }
  for _ in $(seq 50); do munge -n 2>/dev/null | unmunge >/dev/null 2>&1 && break; sleep 0.1; done
  cat > "$SLURM_CONF" <<CONF
ClusterName=weft
SlurmctldHost=$H(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=${CRED_EXPIRE:-10}
RequeueExit=75
CryptoType=crypto/munge
SlurmctldPort=16817
SlurmdPort=16818
SlurmctldPidFile=$B/run/slurmctld.pid
SlurmdPidFile=$B/run/slurmd.pid
StateSaveLocation=$B/state
SlurmdSpoolDir=$B/spool
SlurmctldLogFile=$B/log/slurmctld.log
SlurmdLogFile=$B/log/slurmd.log
SlurmctldDebug=info
SlurmdDebug=info
MpiDefault=pmix
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=30
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldParameters=preempt_send_user_signal
NodeName=$H NodeAddr=127.0.0.1 CPUs=$CPUS Boards=1 SocketsPerBoard=1 CoresPerSocket=$CPUS ThreadsPerCore=1 RealMemory=$MEM State=UNKNOWN
PartitionName=low  Nodes=$H Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=${GRACE:-30} OverSubscribe=NO
PartitionName=high Nodes=$H MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
CONF
  slurmctld -f "$SLURM_CONF" -c
  slurmd -f "$SLURM_CONF" -c
  for _ in $(seq 60); do sinfo -h -o %T 2>/dev/null | grep -q idle && break; sleep 0.25; done
  sinfo; echo "export SLURM_CONF=$SLURM_CONF" ;;
stop)
  scontrol shutdown 2>/dev/null || true
  for p in slurmd slurmctld; do [ -f "$B/run/$p.pid" ] && kill "$(cat "$B/run/$p.pid")" 2>/dev/null || true; done
  [ -f "$B/run/munged_is_ours" ] && kill "$(cat /run/munge/munged.pid)" 2>/dev/null || true ;;
status) sinfo; squeue; scontrol show node ;;
*) echo "usage: $0 start|stop|status"; exit 2 ;;
esac
