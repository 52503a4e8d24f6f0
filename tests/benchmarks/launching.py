"""Processes of bench_epoch, bench_algorithms and bench_sampling that print figures as JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnloom.trainer.comm.transports.mpi import find_mpiexec
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job import launch

HERE = Path(__file__).parent


def train_ranks(config: TrainConfig, environment: Mapping[str, str]) -> dict[str, Any]:
    """Train on new ranks; the figures of epoch_ranks.py."""
    return ranks_of("epoch_ranks.py", config, environment)


def ranks_of(
    program: str, config: TrainConfig, environment: Mapping[str, str], arguments: Sequence[str] = ()
) -> dict[str, Any]:
    """Run a program of this folder, which takes a configuration as JSON, on the ranks of the configuration."""
    command = [find_mpiexec(), "-n", str(config.algorithm.ranks), *launch.rank_python(), str(HERE / program)]
    given = [json.dumps(config.to_json()), *arguments]
    return last_line(
        [*command, *given],
        launch.rank_environment(config.algorithm.ranks, config.algorithm.threads) | dict(environment),
    )


def last_line(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Run a command.

    Returns:
        The object in the last line of its output.

    Raises:
        SystemExit: the command failed.
    """
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
