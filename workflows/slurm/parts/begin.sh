set -eo pipefail
cd @FOLDER@
@SETUP@
set -u
export GNNLOOM_CATALOG=@CATALOG@
# Waiting threads sleep, freed memory goes back to the system, and log lines appear at once.
export OMP_WAIT_POLICY=PASSIVE MALLOC_TRIM_THRESHOLD_=65536 PYTHONUNBUFFERED=1
# If a signal asks the ranks to stop (USR1 before the time limit, TERM before a preemption), they keep what is done, create
# this file and leave with code 0. Another code would make srun kill the ranks that are still leaving.
export GNNLOOM_STOPPED_FILE=@JOBS@/.stopped-$SLURM_JOB_ID
rm -f "$GNNLOOM_STOPPED_FILE"
# A signal that comes while Python starts waits until Python handles it; older versions of env cannot do this.
keep="env --block-signal=USR1 --block-signal=TERM"
$keep true 2> /dev/null || keep=
# The signal is for the ranks. A batch shell that gets it, too, must not end before them.
trap : USR1

restarts=${SLURM_RESTART_COUNT:-0}
if [ "$restarts" -eq 0 ]; then
    # Warnings about this node may explain what happens later; they do not end the job.
    HYDRA_LAUNCHER=fork gnnloom doctor || echo "gnnloom doctor reports problems (above); the job continues" >&2
fi
# MPICH names its shared memory by job and step, which begin at 0 again after a requeue, and ranks that were killed leave
# theirs behind. These empty steps give every attempt a step number of its own.
for ((attempt = 0; attempt < restarts; attempt++)); do
    srun --mpi=none --nodes=1 --ntasks=1 --ntasks-per-node=1 true
done

run_on_ranks() {
    srun --mpi=@MPI@ --cpus-per-task=@CPUS@ --kill-on-bad-exit=1 $keep gnnloom run @ARGUMENTS@ --cluster mpi "$@"
    if [ -e "$GNNLOOM_STOPPED_FILE" ]; then
        rm -f "$GNNLOOM_STOPPED_FILE"
        if [ "$restarts" -ge @REQUEUES@ ]; then
            echo "stopped again after $restarts restarts ([slurm] requeues); submit the script again to continue" >&2
            exit 75
        fi
        scontrol requeue "$SLURM_JOB_ID"
        exit 0
    fi
}
