#!/bin/sh
# Prolog and Epilog of slurm.conf in one: asks `trainwarden-exporter preflight` whether this node is fit for a job.
# See docs/slurm.md for the setup and the reaction of Slurm.
#
# A status other than 0 drains the node, so only a failed preflight returns it. A preflight that cannot run (no such
# program, a wrong configuration, a timeout) is logged and drains no node.

# Slurm sets no search path.
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
exporter=${TRAINWARDEN_EXPORTER:-/opt/trainwarden/bin/trainwarden-exporter}
config=${TRAINWARDEN_CONFIG:-/etc/trainwarden/exporter.yml}
# More flags for preflight, such as: --gpu.memory-free=70GiB
more=${TRAINWARDEN_PREFLIGHT:-}
# Seconds that preflight may take; together less than PrologEpilogTimeout, where that is set.
within=${TRAINWARDEN_TIMEOUT:-60}
# Seconds for the leftovers of a job to end on their own.
patience=${TRAINWARDEN_RETRY_FOR:-30}

tell() {
    line="${SLURM_SCRIPT_CONTEXT:-} of job ${SLURM_JOB_ID:-}: $1"
    echo "$line" >&2
    logger --tag trainwarden -- "$line" 2> /dev/null
}

# Other jobs legitimately hold GPUs, memory and ports here: preflight is for a node allocated exclusively.
shared() {
    pgrep -af '^slurmstepd[^ ]*: \[' | grep -Fqv ": [${SLURM_JOB_ID:-}."
}

# 0: fit. 1: refused. 2: it could not run.
ask() {
    # shellcheck disable=SC2086 - flags, word by word
    output=$(timeout --kill-after=5 "$within" "$exporter" preflight --config.file="$config" $more 2>&1)
    status=$?
    case $status:$output in
        0:*) return 0 ;;
        1:*"Not ready to start a run"*) return 1 ;;
        *) return 2 ;;
    esac
}

leave_alone_if_shared() {
    if shared; then
        tell 'not looked at: another job is on this node'
        exit 0
    fi
}

leave_alone_if_shared
ask
fit=$?
case ${SLURM_SCRIPT_CONTEXT:-} in epilog*)
    ended=$(($(date +%s) + patience))
    while [ "$fit" = 1 ] && [ "$(date +%s)" -lt "$ended" ]; do
        sleep 2
        ask
        fit=$?
    done
    ;;
esac

case $fit in
    0) exit 0 ;;
    1)
        leave_alone_if_shared # with a job that has begun meanwhile and caused the refusal
        tell "no job may start here, the node is drained:
$output"
        exit 1
        ;;
    *)
        tell "preflight could not be asked (status $status), the node stays in use:
$output"
        exit 0
        ;;
esac
