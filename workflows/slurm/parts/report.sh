# Write a report on the run. The training is done, so a report that fails does not make the job fail.
write_report() {
    local run
    run=$(gnnloom run @ARGUMENTS@ "$@" --dry-run --json |
        python3 -I -c 'import json, sys; print(json.load(sys.stdin)["stages"][-1]["key"])') || return
    gnnloom report @DATASET@/"$run" --out @JOBS@/report-"$run"
}
