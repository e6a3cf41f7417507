#!/bin/sh
#SBATCH --job-name=grpo
#SBATCH --requeue
# A job that looks before it starts, also where nobody has set up a prolog: needs no right of root.
#
# 75 and 76 are what RequeueExit and RequeueExitHold of slurm.conf name: put back, to start where the node is fit; put
# back and held, since a configuration that is wrong would be wrong everywhere.
config=${TRAINWARDEN_CONFIG:-$HOME/trainwarden/exporter.yml}

"${TRAINWARDEN_EXPORTER:-trainwarden-exporter}" preflight --config.file="$config" --run=grpo
case $? in
    0) ;;
    2) exit 76 ;;
    *) exit 75 ;;
esac

exec "${TRAINING:-./start-training.sh}"
