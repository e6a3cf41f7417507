#!/bin/sh
# Prolog and Epilog of slurm.conf in one: asks `trainwarden-exporter preflight` whether this node is fit for a job.
# docs/slurm.md tells how it is set up, and what Slurm does then.
#
# A status other than 0 drains the node, so it is kept for what preflight has refused. That it could not be asked (no
# such program, a configuration that is wrong, no answer in time) is told, and takes no node away.

# Slurm gives no search path.
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
exporter=${TRAINWARDEN_EXPORTER:-/opt/trainwarden/bin/trainwarden-exporter}
config=${TRAINWARDEN_CONFIG:-/etc/trainwarden/exporter.yml}
# More for preflight, such as: --gpu.memory-free=70GiB
more=${TRAINWARDEN_PREFLIGHT:-}
# Seconds that preflight may take; together less than PrologEpilogTimeout, where that is set.
within=${TRAINWARDEN_WITHIN:-60}
# Seconds that what a job leaves behind has to end by itself.
patience=${TRAINWARDEN_PATIENCE:-30}

tell() {
    told="${SLURM_SCRIPT_CONTEXT:-} of job ${SLURM_JOB_ID:-}: $1"
    echo "$told" >&2
    logger --tag trainwarden -- "$told" 2> /dev/null
}

# Other jobs here hold GPUs, memory and ports rightly: preflight is about a node that is given to one job as a whole.
shared() {
    pgrep -af '^slurmstepd[^ ]*: \[' | grep -Fqv ": [${SLURM_JOB_ID:-}."
}

# 0: fit. 1: refused. 2: it could not be asked.
ask() {
    # shellcheck disable=SC2086 - flags, word by word
    said=$(timeout --kill-after=5 "$within" "$exporter" preflight --config.file="$config" $more 2>&1)
    status=$?
    case $status:$said in
        0:*) return 0 ;;
        1:*"A run must not start here now"*) return 1 ;;
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
        leave_alone_if_shared # one that has begun meanwhile, and was what is refused
        tell "no job may start here, the node is drained:
$said"
        exit 1
        ;;
    *)
        tell "preflight could not be asked (status $status), the node stays in use:
$said"
        exit 0
        ;;
esac
