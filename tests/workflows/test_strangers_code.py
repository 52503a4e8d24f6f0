"""Nobody's file runs code: what stored files name is imported only if the command names it too."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.errors import CorruptError, FormatError, GnnloomError, InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.continuation import configure
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.stored_predictions import look_up
from gnnloom.trainer.config.train_config import TrainConfig, command_line
from gnnloom.trainer.job import launch
from gnnloom.trainer.loggers.registry import LOGGERS
from gnnloom.workflows.report.facts import RunFacts
from support.consumers import CONSUMERS
from support.in_process import run_command
from support.lone_training import install
from support.strangers import FORMS, NAMED, hostile_copies, name_code, plant, ran

#: Before a fixture replaces it.
START_RANKS: Final = launch._launch
#: A model of the user's own, for which the ranks of the tests find the module.
OWN: Final = "support.own_models:Plain"
#: Commands that show what is stored, so they succeed; ``{run}`` stands for a run.
SHOWN: Final = (
    "train {run}",
    "catalog show {dataset}",
    "catalog ls",
    "catalog gc {dataset} --dry-run",
    "catalog lineage {dataset}",
    "catalog verify {dataset}",
    "catalog export {dataset} {out}/a.tar",
    "catalog push {dataset} {out}/pushed",
    "export {run} metrics --out {out}/m.csv",
    "report {run} --out {out}/report",
    "report --compare {run} {dataset}/own --out {out}/comparison",
    "predict {run}",
)
#: Commands that compute with the run.
COMPUTING: Final = (
    "train {run} --plan",
    "train {run} --epochs 5",
    "train {run} --restart",
    "train {run} --normalization mean",
    "predict {run}",
    "predict {run} --checkpoint last --embeddings",
    "predict {run} --smooth labels",
)
ON_PAIRS: Final = ("predict {run} --pairs {folder}/0.csv", "predict {run} --top 2")


class Place:
    """A folder with a catalog in it, which is the current folder, and a folder of installed packages."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        self.catalog, self.site = folder / "catalog", folder / "site"

    def call(self, words: str) -> tuple[int, str]:
        """Run a command; returns its exit code and what it printed."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        done = run_command("--catalog", str(self.catalog), *words.split())
        return done.returncode, done.stdout + done.stderr

    def must(self, words: str) -> str:
        code, printed = self.call(words)
        assert code == 0, f"{words}\n{printed}"
        return printed

    def run(self, name: str = "old") -> Run:
        return Run(self.catalog / "web" / "runs" / name)

    def ran(self) -> list[str]:
        return ran(self.folder)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with a finished run on vertices, one on pairs, and one of a model of the user's own."""
    place = Place(tmp_path_factory.mktemp("prepared"))
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        place.must("generate web sbm --vertices 40 --edges 200 --classes 3 --dim 3 --workers 0")
        place.must("partition web --parts 1 --method random --workers 0")
        place.must("shard web --parts 1 --workers 0")
        place.must("sample web --fanout 3,2 --batch-size 16 --epochs 1 --workers 0")
        for split, pairs in enumerate(("0,1\n2,3\n", "4,5\n6,7\n")):
            (place.folder / f"{split}.csv").write_text(pairs)
        place.must(
            f"links web file --valid {place.folder}/0.csv --test {place.folder}/1.csv --keep-edges --allow-overlap"
            " --workers 0"
        )
        train = "--ranks 1 --hidden 4 --threads 1 --epochs 2 --checkpoint-every 1"
        place.must(f"train web/old {train} --keep-best auto")
        place.must(f"train web/own {train} --model {OWN}")
        place.must(f"train web/pairs {train} --task link --output-dim 4 --decoder distmult")
        for run in ("old", "pairs"):
            place.must(f"predict web/{run}")
    return place.folder


@pytest.fixture
def place(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A copy of the catalog, with a stranger's code in it, in the current folder and among the installed packages."""
    install(monkeypatch)
    folder = tmp_path / "here"
    shutil.copytree(prepared, folder)
    found = Place(folder)
    plant(folder, found.catalog, found.site)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(found.site))
    monkeypatch.setenv("PYTHONPATH", str(found.site), prepend=":")
    found.ran()
    yield found
    found.ran()


@pytest.mark.parametrize("form", [FORMS[0], *(pytest.param(form, marks=pytest.mark.long) for form in FORMS[1:])])
@pytest.mark.parametrize("are_alone", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("run", NAMED)
def test_no_command_imports_what_only_a_stored_configuration_names(
    place: Place, prepared: Path, run: str, are_alone: bool, form: str
) -> None:
    """Whether a stranger gives all options of a run, or each alone, so that no refusal hides another import."""
    folder = place.run(run).path
    for names in [{option: form} for option in NAMED[run]] if are_alone else [dict.fromkeys(NAMED[run], form)]:
        for words in (*COMPUTING, *(ON_PAIRS if run == "pairs" else ())):
            shutil.rmtree(folder)
            shutil.copytree(prepared / folder.relative_to(place.folder), folder)
            name_code(folder, names)
            command = words.format(run=f"web/{run}", dataset="web", out=place.out, folder=place.folder)
            code, printed = place.call(command)
            assert not place.ran(), f"{command} with {names} imported a stranger's code"
            assert "Traceback" not in printed
            # Some commands need no loss, metric or decoder, and stored predictions need no model.
            if "model" in names and words in COMPUTING and words != "predict {run}":
                assert code == InputError.exit_code
                named = "[a-z, ]*(model|decoder)[a-z, ]* names? code to import"
                assert re.search(rf"{re.escape(str(folder))}/config.json: {named}", printed)
                assert re.search(rf"add --(model|decoder) {re.escape(form)} ", printed)


@pytest.mark.parametrize("run", [pytest.param("old", marks=pytest.mark.long), "pairs"])
def test_a_result_is_shown_without_the_code_that_made_it(place: Place, run: str) -> None:
    name_code(place.run(run).path, dict.fromkeys(NAMED[run], FORMS[0]))
    # Verification reports the stranger's files, and an export refuses them; the one in the current folder stays.
    for file in place.catalog.rglob("stranger.py"):
        file.unlink()
    exported = [each.words for each in CONSUMERS if each.name.startswith("export ") and "/old" in each.words]
    # Reports take long, and show what only a run on vertices has.
    for words in (*SHOWN, *exported) if run == "old" else (SHOWN[0], SHOWN[-1]):
        if "embeddings" not in words:
            place.must(words.format(dataset="web", run=f"web/{run}", out=place.out))
            assert not place.ran(), words


@pytest.mark.slow
def test_no_function_imports_what_only_a_stored_configuration_names(place: Place) -> None:
    for run, options in NAMED.items():
        name_code(place.run(run).path, dict.fromkeys(options, FORMS[0]))
    web = gnnloom.Catalog(place.catalog)["web"]
    functions: list[Callable[[gnnloom.Run], object]] = [
        lambda run: run.config(),
        lambda run: run.result(),
        lambda run: run.metrics(),
        lambda run: run.predictions(),
        lambda run: run._repr_html_(),
        lambda run: run.state_dict(),
        lambda run: RunFacts.gather(run.dataset, run.name),
        gnnloom.predict,
        lambda run: gnnloom.predict(run, embeddings=True),
        lambda run: gnnloom.predict(run, out=place.out / "a.csv", smooth="labels"),
        lambda run: run.score(np.array([[0, 1]])),
        lambda run: run.top(np.array([0]), 2),
        lambda run: run.top(np.array([0]), 2, ranks=1),
        lambda run: gnnloom.train(run.dataset, run=run.name, epochs=4),
        lambda run: gnnloom.train(run.dataset, run=run.name),
        lambda run: command_line(TrainConfig.of_run(run._stored)),
        lambda _: web.verify(),
    ]
    for opened in (gnnloom.Run(web, name) for name in NAMED):
        for number, function in enumerate(functions):
            with suppress(GnnloomError):
                function(opened)
            assert not place.ran(), f"function {number} of {opened.name}"


@pytest.mark.slow
@pytest.mark.parametrize("form", [FORMS[2], pytest.param(FORMS[0], marks=pytest.mark.long)])
def test_no_text_of_any_stored_file_is_imported(place: Place, form: str) -> None:
    """Every text of every file of JSON, one at a time: configurations, metrics, provenance, manifests, checkpoints."""
    web, kinds = place.catalog / "web", set[tuple[str, str]]()
    for path in sorted(web.rglob("*.json")):
        kind = path.relative_to(web).parts[0], path.name
        # One of each: the configuration of the run on pairs has more than the others.
        if path.name == "zarr.json" or kind in kinds or path.parent.name in {"old", "own", "sections"}:
            continue
        kinds.add(kind)
        content = read_json(path)
        for _, hostile in hostile_copies(content, form):
            write_json(path, hostile, durable=False)
            read_as_commands_do(place, path)
        assert not place.ran(), path
        write_json(path, content)
    assert {("runs", "config.json"), ("samples", "manifest.json"), ("runs", "provenance.json")} <= kinds


@pytest.mark.long
def test_no_stored_text_becomes_markup_of_a_report(place: Place) -> None:
    """The texts that a report shows: of the configuration, the sessions, the lineage and the forecast."""
    mark, run = "<script>alert(1)</script>", place.run("old")
    for name in ("provenance.json", "config.json"):
        content = read_json(run.path / name)
        for where in content["sessions"] if name == "provenance.json" else [content]:
            shown = [key for key, value in where.items() if isinstance(value, str) and key not in {"started", "ended"}]
            where.update(dict.fromkeys(set(shown) - {"catalog", "dataset", "run", "shards"}, mark))
        write_json(run.path / name, content)
    printed = place.must(f"report web/old --out {place.out}/report")
    (page,) = (place.out / "report").glob("*.html")
    assert mark not in page.read_text()
    assert "&lt;script&gt;alert(1)" in page.read_text()
    assert "Traceback" not in printed
    assert mark not in gnnloom.Run.open("web/old", place.catalog)._repr_html_()


def test_no_path_of_an_array_leads_out_of_its_folder(place: Place) -> None:
    web = gnnloom.Catalog(place.catalog)["web"]
    run = web.run_path("old")
    for file, read in (
        (run / "predictions" / "predictions.json", lambda: Run(run).predictions()),
        (run / "checkpoint" / "00000002" / "checkpoint.json", lambda: gnnloom.Run(web, "old").state_dict()),
        (web.graph().artifact.path / "manifest.json", lambda: web.graph().artifact.records),
    ):
        stored = read_json(file)
        for path in ("../../../outside", "/outside", "a//b", ".hidden/a"):
            arrays = dict(stored["arrays"])
            arrays[path] = arrays.pop(next(iter(arrays)))
            write_json(file, {**stored, "arrays": arrays})
            with pytest.raises((CorruptError, FormatError), match=re.escape(path)):
                read()
        write_json(file, stored)


def read_as_commands_do(place: Place, path: Path) -> None:
    """What commands do with a stored file before they compute."""
    dataset = Catalog(place.catalog)["web"]
    kind = path.relative_to(dataset.path).parts[0]
    if kind == "runs":
        run = Run(dataset.run_path(path.relative_to(dataset.path).parts[1]))
        fields = {"catalog": str(place.catalog), "dataset": "web", "run": run.name}
        for read in (
            lambda: command_line(TrainConfig.of_run(run)),
            lambda: launch.prepare_launch(configure({**fields, "epochs": 9})),
            lambda: look_up(run, PredictConfig.of_run(dataset, run)),
        ):
            with suppress(GnnloomError):
                read()
        return
    opened: dict[str, Callable[[], object]] = {
        "samples": lambda: dataset.samples().drawn,
        "links": dataset.links,
        "graph": dataset.graph,
        "shards": lambda: dataset.row_shards(1),
    }
    with suppress(GnnloomError):
        opened.get(kind, lambda: Artifact(path.parent).records)()


@pytest.mark.slow
def test_a_command_that_names_the_code_of_a_run_uses_it(place: Place) -> None:
    config = str(place.run("own").config_path)
    for words in ("train web/own --epochs 3", "predict web/own --embeddings"):
        code, printed = place.call(words)
        assert code == InputError.exit_code, printed
        assert f"{config}: model names code to import, '{OWN}'" in printed
        assert f"--model {OWN}" in printed
    code, printed = place.call("predict web/own --model support.own_models:Jumping")
    assert code == InputError.exit_code
    assert config in printed
    # The finished result needs no model, with or without its name.
    place.must("train web/own")
    place.must(f"train web/own --model {OWN}")
    place.must(f"train web/own --model {OWN} --epochs 3")
    place.must(f"train web/own --model {OWN} --plan --epochs 4")
    place.must(f"predict web/own --model {OWN} --embeddings")
    # What is stored is not computed again.
    place.must("predict web/own --embeddings")
    assert place.run("own").result()["epochs"] == 3


@pytest.mark.long
def test_ranks_import_what_the_command_names(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_launch", START_RANKS)
    printed = place.must(f"predict web/own --model {OWN} --json")
    assert '"reused": false' in printed
    # The file for the ranks has no name that the command does not give.
    stored = TrainConfig.of_run(place.run("own")).with_options(epochs=5)
    with pytest.raises(InputError, match=r"config\.json:"):
        launch._launch([], stored.to_json(), 1, 1)


@pytest.mark.slow
def test_a_run_that_a_call_trained_predicts_with_the_code_that_the_call_named(place: Place) -> None:
    web = gnnloom.Catalog(place.catalog)["web"]
    options: Mapping[str, Any] = {"model": OWN, "hidden": 4, "epochs": 1, "threads": 1, "ranks": 1}
    run = gnnloom.train(web, run="mine", **options)
    assert len(gnnloom.predict(run, embeddings=True).embeddings()) == 40
    stored = gnnloom.train(web, run="mine", epochs=2, model=OWN)
    assert stored.result()["epochs"] == 2
    opened = gnnloom.Run.open("web/mine", place.catalog)
    with pytest.raises(InputError, match="in Python, model="):
        gnnloom.predict(opened)
    assert len(gnnloom.predict(opened, model=OWN).predictions()) == 40


@pytest.mark.slow
def test_a_decoder_and_functions_of_the_users_own_are_named_again(place: Place) -> None:
    decoder, train = "support.own_decoder:Between", "--hidden 4 --threads 1 --epochs 1 --ranks 1"
    place.must(f"train web/between --task link --output-dim 4 --decoder {decoder} {train}")
    for words in (f"predict web/between --pairs {place.folder}/0.csv", "predict web/between --top 2"):
        code, printed = place.call(words)
        assert code == InputError.exit_code
        assert f"--decoder {decoder}" in printed
        place.must(f"{words} --decoder {decoder}")
    run = gnnloom.Run.open("web/between", place.catalog)
    with pytest.raises(InputError, match="add --decoder"):
        run.score([[0, 1]])
    assert run.score([[0, 1]], decoder=decoder).shape == (1,)
    assert run.top([0], 2, decoder=decoder)[0].shape == (1, 2)
    own = "--loss support.own_functions:cross_entropy --metric support.own_functions:margin"
    place.must(f"train web/functions {own} {train}")
    place.must("predict web/functions")
    code, printed = place.call("train web/functions --epochs 2")
    assert code == InputError.exit_code
    assert "--loss support.own_functions:cross_entropy" in printed
    place.must(f"train web/functions --epochs 2 {own}")


def test_all_names_that_the_command_must_give_are_reported_at_once(place: Place) -> None:
    # A shell would run the rest of such a name.
    form = "stranger:Evil;touch$(x)"
    for run in NAMED:
        name_code(place.run(run).path, dict.fromkeys(NAMED[run], form))
    for run, words, options in (
        ("old", "train {run} --epochs 5", ("model", "loss", "metric")),
        ("old", "train {run} --plan", ("model", "loss", "metric")),
        ("old", "train {run} --normalization mean", ("model", "loss", "metric")),
        ("old", "train {run} --epochs 5 --loss {form}", ("model", "metric")),
        ("pairs", "train {run} --restart", ("model", "decoder")),
        ("pairs", "predict {run} --checkpoint last --embeddings", ("model", "decoder")),
    ):
        code, printed = place.call(words.format(run=f"web/{run}", form=form))
        assert code == InputError.exit_code
        flags = " ".join(f"--{option} '{form}'" for option in options)
        assert f"add {flags} (in Python, {', '.join(f'{option}=...' for option in options)})" in printed
        assert not place.ran()


def test_a_stored_configuration_does_not_make_a_run_talk_to_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def recorded(name: str, *_: Any) -> Silent:
        opened.append(name)
        return Silent()

    loggers = {name: replace(each, package="", open=partial(recorded, name)) for name, each in LOGGERS.items()}
    for module in ("training.record", "loggers.registry"):
        monkeypatch.setattr(f"gnnloom.trainer.{module}.LOGGERS", loggers)
    name_code(place.run("old").path, {"log": ["wandb", "tensorboard", "mlflow", "nosuch; touch x"]})
    note = "log names 'wandb', 'mlflow', 'nosuch; touch x', which may send metrics elsewhere"
    remedy = "add --log 'wandb,tensorboard,mlflow,nosuch; touch x'"
    # The result needs no logger.
    assert note not in place.must("train web/old")
    printed = place.must("train web/old --epochs 3")
    assert note in printed
    assert remedy in printed
    assert opened == ["tensorboard"]
    name_code(place.run("old").path, {"log": ["wandb"]})
    assert note not in place.must("train web/old --epochs 4 --log wandb")
    assert opened == ["tensorboard", "wandb"]
    # What the command named is in the stored configuration, which is not the command of the next one.
    gnnloom.train(gnnloom.Catalog(place.catalog)["web"], run="old", epochs=5)
    assert opened == ["tensorboard", "wandb"]


class Silent:
    """A log of nothing."""

    def write(self, epoch: int, figures: Mapping[str, float]) -> None: ...

    def close(self, state: str) -> None: ...
