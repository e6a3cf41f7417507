#!/bin/sh
#SBATCH --job-name=grpo
#SBATCH --requeue
# A job that runs the preflight check before it starts, without a prolog and without root.
#
# 75 and 76 are the codes of RequeueExit and RequeueExitHold in slurm.conf: requeued, to start on a fit node; requeued and
# held, because a wrong configuration is wrong everywhere.
config=${TRAINWARDEN_CONFIG:-$HOME/trainwarden/exporter.yml}

"${TRAINWARDEN_EXPORTER:-trainwarden-exporter}" preflight --config.file="$config" --run=grpo
case $? in
    0) ;;
    2) exit 76 ;;
    *) exit 75 ;;
esac

exec "${TRAINING:-./start-training.sh}"
