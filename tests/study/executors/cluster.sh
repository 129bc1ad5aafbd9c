#!/bin/bash
# As much of Slurm as submitit asks for, under the names of its commands: an array's jobs begin at
# once, as processes of this machine. $CLUSTER is a folder for what they share.

begin() { # the number of a job in its array; empty for a single job
    export SLURM_JOB_ID=100
    [ -n "$1" ] && export SLURM_ARRAY_JOB_ID=100 SLURM_ARRAY_TASK_ID=$1
    setsid bash "$CLUSTER/script" </dev/null >/dev/null 2>&1 &
}

case $(basename "$0") in
sbatch)
    [ -e "$CLUSTER/refuses" ] && { echo "sbatch: error: invalid partition" >&2; exit 1; }
    cp "$1" "$CLUSTER/script"
    last=$(sed -n 's/^#SBATCH --array=0-\([0-9]*\).*/\1/p' "$1")
    if [ -n "$last" ]; then
        for number in $(seq 0 "$last"); do begin "$number"; done
    else
        begin ""
    fi
    echo "Submitted batch job 100"
    ;;
srun)
    while [[ $1 == --* ]]; do
        case $1 in
        --output) output=$2; shift 2 ;;
        --error) error=$2; shift 2 ;;
        *) shift ;;
        esac
    done
    name=100${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
    place() { echo "$1" | sed "s/%A_%a/$name/; s/%j/$name/; s/%t/0/"; }
    exec "$@" >>"$(place "$output")" 2>>"$(place "$error")"
    ;;
scontrol)
    echo "$*" >>"$CLUSTER/requeued"
    begin "$(echo "$2" | sed -n 's/.*_//p')"
    ;;
sacct)
    echo "JobID|State|NodeList"
    state=$(cat "$CLUSTER/state" 2>/dev/null || echo RUNNING)
    for name in 100 100_0 100_1; do echo "$name|$state|here"; done
    ;;
esac
