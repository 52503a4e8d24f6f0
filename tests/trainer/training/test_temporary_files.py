"""A bit that flips in a temporary file without a name changes no result: the run ends with one error instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.runs.run import Run
from support.consumers import REFUSED, WRONG
from support.mpi import run_program
from support.problems import problem
from support.sampled import sampled_config, store_for_sampling
from support.streamed_flips import CASES

#: Flips of the cases that are tried by default.
FEW = {"sage predicts": 24, "rows predict": 8, "both in files": 8, "half precision": 4, "rows": 8, "layer by layer": 6}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "flips"), [*FEW.items(), *(pytest.param(name, 100, marks=pytest.mark.long) for name in CASES)]
)
def test_a_bit_that_flips_in_a_temporary_file_changes_no_result(tmp_path: Path, case: str, flips: int) -> None:
    tried = CASES[case](tmp_path)
    answers = [tried.answer(0, number) for number in range(flips)]
    assert [what for answer, what in answers if answer == WRONG] == []
    # Not every bit is read again.
    assert REFUSED in {answer for answer, _ in answers}


@pytest.mark.slow
def test_a_changed_file_of_one_rank_is_an_error_on_all(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    store_for_sampling(catalog, problem("web", 60, 240, symmetric=True), 2)
    options: dict[str, dict[str, Any]] = {
        "full": {"inputs": "disk", "batch_size": 1024},
        "rows": {"model": "mlp"},
        "neighbor": {"inputs": "disk", "model": "gat", "fanout": (3, 3)},
    }
    configs = [
        sampled_config(catalog, "web", mode, mode, ranks=2, eval_every=1, **given) for mode, given in options.items()
    ]
    codes = run_program(2, "flipped", tmp_path, [config.to_json() for config in configs])
    assert codes == [[CorruptError.exit_code] * 2] * len(configs)
    # Nothing that follows from the damage is kept.
    assert [Run(catalog["web"].run_path(mode)).metrics() for mode in options] == [[]] * len(configs)
