set -eo pipefail
cd @FOLDER@
@SETUP@
set -u
export GNNLOOM_CATALOG=@CATALOG@
# Waiting threads sleep, freed memory goes back to the system, and log lines appear at once.
export OMP_WAIT_POLICY=PASSIVE MALLOC_TRIM_THRESHOLD_=65536 PYTHONUNBUFFERED=1
# Ranks that leave together, with an error or because a signal asks them to stop (USR1 before the time limit, TERM before a
# preemption), write their exit code into this file and leave with 0. Any other code of a rank is a crash, for which srun
# kills all others.
export GNNLOOM_EXIT_CODE_FILE=@JOBS@/.exit-code-$SLURM_JOB_ID
rm -f "$GNNLOOM_EXIT_CODE_FILE"
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

# Code 75: the ranks were asked to stop, kept what is done, and continue when the job begins again.
run_on_ranks() {
    local code=0
    srun --mpi=@MPI@ --cpus-per-task=@CPUS@ --kill-on-bad-exit=1 $keep gnnloom run @ARGUMENTS@ --cluster mpi "$@" || code=$?
    if [ -s "$GNNLOOM_EXIT_CODE_FILE" ]; then
        code=$(< "$GNNLOOM_EXIT_CODE_FILE")
        rm -f "$GNNLOOM_EXIT_CODE_FILE"
    fi
    if [ "$code" -eq 75 ]; then
        if [ "$restarts" -lt @REQUEUES@ ]; then
            scontrol requeue "$SLURM_JOB_ID"
            exit 0
        fi
        echo "stopped again after $restarts restarts ([slurm] requeues); submit the script again to continue" >&2
    fi
    if [ "$code" -ne 0 ]; then
        exit "$code"
    fi
}
