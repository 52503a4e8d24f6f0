"""Everything about an algorithm follows from its descriptor."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.config.fields import names_with_option
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.models.registry import MODELS
from gnnloom.trainer.modes.registry import MODES


def test_algorithms_are_listed_in_the_order_of_choices() -> None:
    assert list(ALGORITHMS) == ["p2p", "broadcast", "replicated", "summa", "split3d", "tensor3d"]


def test_descriptors_load_neither_torch_nor_mpi() -> None:
    # The models' registry loads the algorithms' one too.
    program = "import sys, gnnloom.trainer.models.registry, gnnloom.trainer.tasks.registry\n"
    program += "print({'torch', 'mpi4py'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_grids_are_as_even_as_possible_and_others_are_refused_with_those_that_fit() -> None:
    assert ALGORITHMS["summa"].settled_grid(None, 12) == {"row": 4, "column": 3}
    assert ALGORITHMS["tensor3d"].settled_grid(None, 12) == {"x": 3, "y": 2, "z": 2}
    assert ALGORITHMS["broadcast"].settled_grid(None, 7) == {"row": 7}
    assert ALGORITHMS["split3d"].settled_grid((3, 1, 2), 6) == {"row": 3, "column": 1, "layer": 2}
    with pytest.raises(InputError, match=r"grid 2x2:"):
        TrainConfig.of(catalog="c", dataset="graph", ranks=6, algorithm="summa", grid=(2, 2))
    with pytest.raises(InputError, match="grid 4: algorithm tensor3d"):
        TrainConfig.of(catalog="c", dataset="graph", ranks=4, algorithm="tensor3d", grid=(4,))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("model", MODELS)
def test_a_model_runs_on_the_algorithms_that_have_what_it_needs(algorithm: str, model: str) -> None:
    mode = "rows" if MODELS[model].takes_steps else "full"
    needs = MODELS[model].needs | MODES[mode].needs
    if needs <= ALGORITHMS[algorithm].capabilities:
        assert TrainConfig.of(catalog="c", dataset="d", algorithm=algorithm, model=model, mode=mode).model.name == model
    else:
        with pytest.raises(
            InputError,
            match=f"(model '{model}'|mode '{mode}'): algorithm {algorithm} .*--algorithm p2p",
        ):
            TrainConfig.of(catalog="c", dataset="d", algorithm=algorithm, model=model, mode=mode)


def test_an_algorithm_is_given_its_own_options_only() -> None:
    own = {
        name: TrainConfig.of(
            catalog="c", dataset="d", algorithm=name, summa_width=7, aggregation_blocks=3
        ).algorithm.own_options()
        for name in ("p2p", "split3d", "tensor3d")
    }
    assert own == {
        "p2p": {"exchange": "rows"},
        "split3d": {"summa_width": 7},
        "tensor3d": {"aggregation_blocks": 3, "gradient_product": "straight"},
    }
    assert names_with_option(ALGORITHMS, "summa_width") == ["summa", "split3d"]


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        (Option(default=1, help=""), "3", 3),
        (Option(default=0.5, help="", below=1.0), "0.25", 0.25),
        (Option(default=False, help=""), "true", True),
    ],
)
def test_an_option_reads_its_value_from_text(option: Option, text: str, value: object) -> None:
    assert replace(option, name="name").parse(text) == value


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        (Option(default=1, help="", least=1), "0", "name 0: expected at least 1"),
        (Option(default=1, help="", least=1, most=8), "9", "name 9: expected at most 8"),
        (Option(default=1, help=""), "two", "name 'two': expected an integer"),
        (Option(default=0.5, help="", below=1.0), "nan", "name nan: expected a number"),
        (Option(default=False, help=""), "maybe", "name 'maybe': expected true or false"),
        (Option(default="a", help="", choices=("a", "b")), "c", "name 'c': expected one of a, b"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_expected(option: Option, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        replace(option, name="name").parse(text)
