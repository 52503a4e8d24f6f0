"""`gnnloom train --memory` in control groups of that size, against the best options that a person could choose.

    python tests/benchmarks/bench_memory.py [--scale small|full] [--folder FOLDER] [--cases NAMES]

For each graph and model, the limits lie between the smallest and the usual combination of options. At each limit, the
training with --memory runs in a control group of the limit, and so does every combination that the forecast lets fit;
combinations with bf16 only if --memory chose bf16, as they change the results. The choice and the best combination then
train again in turn, and the least time of an epoch counts; a choice that is the best combination has its time. Prints a
table, then lines ``RESULT name value unit``: epochs of the choice over epochs of the best combination, and how many
trainings the system killed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from commands import gnnloom
from control_group import memory_group

from gnnloom.trainer.planner.fitting import SMALLER

#: Bytes of the processes that start the rank.
_LAUNCHER: Final = 72 << 20
_EPOCHS: Final = 5
#: Trainings of the choice and of the best combination that are compared.
_ROUNDS: Final = 3


@dataclass(frozen=True)
class Case:
    """A graph and a model."""

    name: str
    graph: tuple[str, ...]
    model: tuple[str, ...]


CASES: Final = (
    Case("gcn-wide", ("--vertices", "131072", "--edges", "1500000", "--dim", "512"), ("--hidden", "256,256")),
    Case("gcn-edges", ("--vertices", "131072", "--edges", "16000000", "--dim", "64"), ("--hidden", "64")),
    Case("sage", ("--vertices", "262144", "--edges", "3000000", "--dim", "256"), ("--model", "sage", "--hidden", "64")),
    Case("gat", ("--vertices", "131072", "--edges", "2400000", "--dim", "256"), ("--model", "gat", "--hidden", "32")),
    Case(
        "neighbor",
        ("--vertices", "262144", "--edges", "2000000", "--dim", "256"),
        ("--model", "sage", "--hidden", "64", "--mode", "neighbor", "--fanout", "10,5"),
    ),
)
#: Cases, and limits of each.
SCALES: Final = {"small": (1, 1), "full": (len(CASES), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--folder", help="folder for temporary files [default: the system's]")
    parser.add_argument("--cases", default=",".join(case.name for case in CASES), help="names, such as gat,sage")
    options = parser.parse_args()
    num_cases, num_limits = SCALES[options.scale]
    cases = [case for case in CASES if case.name in options.cases.split(",")]
    killed, worst = 0, 0.0
    print(f"{'':12}{'limit':>12}  {'chosen':44}{'s/epoch':>9}  {'best':36}{'s/epoch':>9}{'ratio':>7}")
    for case in cases[:num_cases]:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-memory-") as folder:
            for limit, chosen, seconds, best, fastest in _compare(folder, case, num_limits):
                ratio = seconds / fastest if seconds else float("nan")
                print(
                    f"{case.name:12}{limit >> 20:8} MiB  {chosen:44}{seconds:9.3f}  {best:36}{fastest:9.3f}{ratio:7.2f}"
                )
                sys.stdout.flush()
                killed += not seconds
                worst = max(worst, ratio if seconds else 0.0)
    print(f"RESULT memory_killed {killed} trainings\nRESULT memory_worst_over_best {worst:.3g} x")


def _compare(folder: str, case: Case, num_limits: int) -> Iterator[tuple[int, str, float, str, float]]:
    """For each limit, the options that --memory chose, its epochs, the best options, and their epochs; 0 if killed."""
    gnnloom(folder, "generate", "web", "sbm", *case.graph, "--classes", "19")
    gnnloom(folder, "partition", "web", "--parts", "1", "--method", "block")
    gnnloom(folder, "shard", "web", "--parts", "1")
    asked = ("train", "web", *case.model, "--epochs", str(_EPOCHS), "--eval-every", "0", "--no-final-eval")
    needed: dict[tuple[str, ...], int] = {}
    for bits in product((False, True), repeat=len(SMALLER)):
        names = tuple(name for name, bit in zip(SMALLER, bits, strict=True) if bit)
        # Not every model has every option.
        with suppress(SystemExit):
            plan = gnnloom(folder, *asked, *_flags(names), "--plan")
            needed[names] = max(plan["peak_memory"]) + min(plan["mapped_bytes"], 64 << 20)
    least, most = min(needed.values()), needed[()]
    for number in range(num_limits):
        limit = least + (most - least) * (number + 1) // (num_limits + 1) + (8 << 20)
        settled = [*asked, "--memory", str(limit), "--run"]
        found = _trained(folder, [*settled, f"chosen-{number}"], limit)
        chosen = _chosen(folder, f"chosen-{number}") if found else ()
        times = {
            names: seconds
            for names, takes in needed.items()
            if takes <= limit and ("precision" not in names or "precision" in chosen)
            if (seconds := _trained(folder, [*asked, *_flags(names), "--run", _name(names, number)], limit))
        }
        best = min(times, key=lambda names: times[names])
        of_choice, of_best = [found], [times[best]]
        for again in range(1, _ROUNDS if found else 1):
            of_choice.append(_trained(folder, [*settled, f"chosen-{number}-{again}"], limit))
            name = f"{_name(best, number)}-{again}"
            of_best.append(_trained(folder, [*asked, *_flags(best), "--run", name], limit))
        # In batches, --memory also chooses how many rows are kept.
        if chosen == best and not ("inputs" in chosen and "neighbor" in case.model):
            of_choice = of_best = of_choice + of_best
        yield limit, _shown(chosen), min(of_choice), _shown(best), min(of_best)


def _trained(folder: str, arguments: list[str], limit: int) -> float:
    """Seconds of an epoch in a control group of this limit; 0 if the training was killed."""
    with memory_group(f"gnnloom-bench-memory-{os.getpid()}", limit + _LAUNCHER) as group:
        if group is None:
            raise SystemExit("this system gives this process no control group of memory")
        return _measured(folder, arguments, group.enter)


def _measured(folder: str, arguments: list[str], enter: Callable[[], None]) -> float:
    command = [sys.executable, "-m", "gnnloom.workflows.cli.main", "--catalog", folder, *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=enter)
    if done.returncode:
        print(done.stderr[-500:], file=sys.stderr)
        return 0.0
    return float(json.loads(done.stdout)["epoch_seconds"])


def _chosen(folder: str, run: str) -> tuple[str, ...]:
    """The options that a run has of those that make it smaller."""
    with open(f"{folder}/web/runs/{run}/config.json", encoding="utf-8") as file:
        config: dict[str, Any] = json.load(file)
    return tuple(name for name, value in SMALLER.items() if config[name] == value)


def _flags(names: tuple[str, ...]) -> list[str]:
    flags = [(f"--{name}", *([] if SMALLER[name] is True else [SMALLER[name]])) for name in names]
    return [word for flag in flags for word in flag]


def _name(names: tuple[str, ...], number: int) -> str:
    return f"by-hand-{number}-{'-'.join(names) or 'usual'}"


def _shown(names: tuple[str, ...]) -> str:
    return " ".join(_flags(names)) or "usual"


if __name__ == "__main__":
    main()
