"""A model of one's own is a class that ``--model`` names, or the descriptor of another package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gnnloom.trainer.models
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.arguments import parse_arguments
from gnnloom.trainer.models.kind import ModelKind
from support.plugins import install_plugin

GCNII = "gnnloom.workflows.examples.gcnii:GCNII"

MODULE = """
from gnnloom.trainer.models.networks.model import Model


class Mine(Model):
    normalizations = ("mean",)

    def create_parameters(self, generator): ...
    def layer(self, inputs, layer): ...


class Unfinished(Model): ...


NUMBER = 3
"""

DESCRIPTOR = """
from gnnloom.trainer.models.kind import ModelKind

MODEL = ModelKind(
    name="mine", order=9, help="Mine", source="nobody", normalizations=("none",), place=("builtins", "dict")
)
"""


def config(model: str, **options: Any) -> TrainConfig:
    return TrainConfig.of(catalog="c", dataset="cora", ranks=2, model=model, **options)


def test_the_example_has_forty_lines_at_most() -> None:
    example = Path(__file__).parents[3] / "workflows" / "examples" / "gcnii.py"
    assert len(example.read_text().splitlines()) <= 40


def test_a_class_states_what_it_needs_and_its_options() -> None:
    found = config(GCNII, model_options=("alpha=0.3",))
    assert found.model.normalization == "symmetric"
    assert found.model.own_options() == {"alpha": 0.3, "theta": 0.5}
    # The class names the run, in the letters that a name may have.
    assert found.run_name.startswith("gcnii-p2p-2-")
    assert TrainConfig.of(**found.to_json()) == found
    assert found.run_name != config(GCNII).run_name
    with pytest.raises(InputError, match=r"model .*GCNII': algorithm .* does not .*; choose --algorithm p2p"):
        config(GCNII, algorithm="broadcast")
    with pytest.raises(InputError, match=r"model_options 'beta=1': .* alpha, theta"):
        config(GCNII, model_options=("beta=1",))
    with pytest.raises(InputError, match=r"alpha 2\.0: "):
        config(GCNII, model_options=("alpha=2",))
    with pytest.raises(InputError, match=r"model_options 'alpha=1': .*model gcn "):
        config("gcn", model_options=("alpha=1",))


def test_ranks_take_a_class_by_its_name() -> None:
    arguments = ["cora", "--catalog", "c", "--model", GCNII, "--model-options", "alpha=0.3,theta=1"]
    found = parse_arguments(arguments).config
    assert isinstance(found, TrainConfig)
    assert found.model.own_options() == {"alpha": 0.3, "theta": 1.0}


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("gnc", "model 'gnc': expected one of gcn, sage, gin, gat, mlp, sign, or package.module:NAME"),
        ("own_models:", "model 'own_models:': expected a name such as"),
        ("nowhere.to_be:Found", "nowhere.to_be cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("own_models:Missing", "own_models.py has no Missing"),
        ("own_models:mine", r"own_models.py has no mine; did you mean Mine\?"),
        ("own_models:NUMBER", "expected a subclass of gnnloom.trainer.models.networks.model.Model, found 3"),
        ("own_models:Unfinished", "the class does not define create_parameters, layer"),
    ],
)
def test_what_is_no_model_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, said: str
) -> None:
    # Found in the current folder, which is not on the path of an installed program.
    (tmp_path / "own_models.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    assert config("own_models:Mine").model.normalization == "mean"
    with pytest.raises(InputError, match=said):
        config(model)


def test_another_package_announces_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_plugin(tmp_path / "site", "minepack", DESCRIPTOR, "gnnloom.models", "MODEL")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = load_descriptors(gnnloom.trainer.models, "MODEL", "gnnloom.models", ModelKind)
    assert list(found) == ["gcn", "sage", "gin", "gat", "mlp", "sign", "mine"]
