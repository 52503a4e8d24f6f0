"""Damaged and foreign files are reported by name, and do not stop anything else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import zarr

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.checks.verify import Finding
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.disk.seal import is_sealed, seal_line, seal_text
from gnnloom.storage.errors import CorruptError, GnnloomError
from gnnloom.storage.format.artifact import MANIFEST, WORK, Artifact
from gnnloom.storage.runs.run import Run
from support.small_catalogs import begin_partition, store_small_dataset


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def edited(**changes: object) -> Callable[[Path], None]:
    """The same JSON with other entries, and a checksum if it had one."""

    def change(path: Path) -> None:
        write_json(path, read_json(path, sealed=False) | changes, sealed=is_sealed(path.read_bytes()))

    return change


def replaced(text: str | bytes) -> Callable[[Path], None]:
    data = text.encode() if isinstance(text, str) else text

    def change(path: Path) -> None:
        path.write_bytes(data)

    return change


def lines(*texts: str) -> Callable[[Path], None]:
    """Lines of JSON with their checksums."""
    return replaced("".join(f"{seal_line(text)}\n" for text in texts))


def into_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of a catalog with the small dataset, which nobody changes."""
    root = tmp_path_factory.mktemp("stored") / "catalog"
    store_small_dataset(Catalog(root))
    return root


@pytest.fixture
def dataset(catalog: Catalog, stored: Path) -> Dataset:
    """A copy of the small dataset for one test, in its catalog."""
    shutil.copytree(stored, catalog.root, symlinks=True)
    return catalog["web"]


def damaged(dataset: Dataset, *, quick: bool = False) -> list[Finding]:
    """Findings of damage, except in the shards, which are incomplete in the small dataset."""
    return [finding for finding in dataset.verify(quick=quick) if finding.is_damaged and finding.kind != "shards"]


BAD_MANIFESTS = [
    cut,
    into_folder,
    replaced("[]"),
    replaced(b"\x80\xff"),
    replaced("[" * 100_000),
    edited(arrays=[]),
    edited(parameters=5),
    edited(sizes=None),
    edited(sizes={}),
    edited(facts={}),
    edited(arrays={"degree": {"shape": 3}}),
    edited(arrays={"degree": 3}),
]


@pytest.mark.parametrize("change", BAD_MANIFESTS)
def test_a_damaged_manifest_is_one_finding_everything_else_is_verified_and_nothing_is_garbage(
    dataset: Dataset, change: Callable[[Path], None]
) -> None:
    graph = dataset.graph().artifact
    change(graph.path / MANIFEST)
    (found,) = damaged(dataset)
    assert (found.kind, found.key, found.state) == ("graph", graph.key, "complete")
    assert str(graph.path) in str(found.problem)
    assert {finding.kind for finding in dataset.verify(quick=True)} >= {"graph", "partition", "shards", "runs"}
    dataset.collect_garbage()
    assert len(dataset.artifacts()) == 5
    assert graph.path.is_dir()


def test_a_commit_during_a_listing_is_seen(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = catalog.create("web")
    writer = begin_partition(dataset)

    def committed_meanwhile(path: Path) -> dict[str, object]:
        if path.name == "plan.json":
            write_json(writer.path / MANIFEST, {"parameters": {"parts": 9}})
            (writer.path / WORK / "plan.json").unlink()
        return read_json(path)

    monkeypatch.setattr("gnnloom.storage.artifacts.artifact_info.read_json", committed_meanwhile)
    (info,) = dataset.artifacts("partition")
    assert (info.state, info.parameters) == ("complete", {"parts": 9})


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("metrics.jsonl", replaced('{"epoch": 0}\n'), r"metrics\.jsonl:1: the checksum is wrong or missing"),
        ("metrics.jsonl", lines('{"epoch": 0}', '{"epoch": 1, "x": 1,}'), r"metrics\.jsonl:2: not valid JSON"),
        ("metrics.jsonl", lines('{"loss": 0}'), r"metrics\.jsonl:1: expected the number of an epoch"),
        ("metrics.jsonl", lines('{"epoch": 0, "loss": "1"}'), r"metrics\.jsonl:1: expected figures as loss"),
        ("metrics.jsonl", lines('{"epoch": 0, "loss": [1]}'), r"expected figures as loss, found \[1\]"),
        ("metrics.jsonl", lines('{"epoch": 0, "bytes": {"x": "y"}}'), r"expected figures as bytes, found {'x'"),
        ("predictions/predictions.json", replaced("{}"), r"predictions\.json: the checksum is not in its place"),
        ("predictions/predictions.json", edited(facts=5), r"predictions\.json: not the index"),
        ("predictions/predictions.json", edited(format_version="x"), r"'x' is not a version"),
        ("predictions/predictions.json", edited(arrays={"label": {"shape": ["x"]}}), r"predictions\.json: not the"),
        ("result.json", edited(epochs=None), r"result\.json: lacks the number of epochs"),
        ("result.json", cut, r"result\.json: not valid JSON"),
        ("inputs.json", replaced("{"), r"inputs\.json: not valid JSON"),
        ("recipe.toml", replaced("[train"), r"recipe\.toml: the checksum is wrong or missing"),
        ("recipe.toml", replaced(seal_text("[train\n")), r"recipe\.toml: not a recipe"),
    ],
)
def test_a_damaged_file_of_a_run_is_a_finding(
    dataset: Dataset, file: str, change: Callable[[Path], None], says: str
) -> None:
    change(dataset.run_path("first") / file)
    (found,) = damaged(dataset, quick=True)
    assert found.kind == "runs"
    with pytest.raises(CorruptError, match=says):
        raise CorruptError(found.problem)


def test_a_result_without_epochs_is_refused(dataset: Dataset) -> None:
    write_json(dataset.run_path("first") / "result.json", {})
    with pytest.raises(CorruptError, match="train again"):
        Run.open(dataset, "first").result()


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        (
            "block/00000/zarr.json",
            {"attributes": {"encoding-type": "csr_matrix", "shape": [30, 30], "nnz": 1}},
            "nnz is 1",
        ),
        ("block/00000/zarr.json", {"attributes": {"encoding-type": "csr_matrix", "shape": [9, 30]}}, "nnz is None"),
        ("block/00000/zarr.json", {"node_type": "array"}, "expected a group"),
        ("block/zarr.json", {"attributes": 5}, "not the metadata of a group"),
        ("zarr.json", {"attributes": {"encoding-type": "gnnloom-shards"}}, "the manifest says 'gnnloom-graph'"),
        ("degree/zarr.json", {"dimension_names": ["edge"]}, r"with dimensions \('edge',\)"),
        ("degree/zarr.json", {"chunk_key_encoding": {"name": "none"}}, "not the metadata of an array"),
    ],
)
def test_metadata_for_other_readers_must_agree_with_the_manifest(
    dataset: Dataset, file: str, change: dict[str, object], says: str
) -> None:
    path = dataset.graph().artifact.path / file
    edited(**change)(path)
    for quick in (True, False):
        (found,) = damaged(dataset, quick=quick)
        with pytest.raises(CorruptError, match=says):
            raise CorruptError(found.problem)
        assert str(path) in str(found.problem)


def test_datasets_that_cannot_be_opened_do_not_stop_the_others(
    catalog: Catalog, dataset: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    zarr.open_group(str(catalog.root / "foreign"), mode="w")
    (catalog.root / "cut").mkdir()
    (catalog.root / "cut" / "zarr.json").write_text("{")
    assert [dataset.name for dataset in catalog.datasets()] == ["web"]
    assert {"foreign", "cut"} == {name for name in catalog if f"{name}: " in caplog.text}
    begun = begin_partition(dataset)
    assert begun.path in {item.path for item in catalog.collect_garbage()}


def test_inputs_of_other_artifacts_are_removed_only_by_force(dataset: Dataset) -> None:
    partition, shards = dataset.partition(2).artifact, dataset.find("shards")
    with pytest.raises(GnnloomError, match=f"needed by shards/{shards.key}.*--force"):
        dataset.remove_artifact("partition", partition.key)
    assert Artifact(partition.path).verify() == 1
    dataset.remove_artifact("partition", partition.key, force=True)
    assert not partition.path.exists()
    dataset.remove_artifact("runs", "first")
    dataset.remove_artifact("shards", shards.key)
    assert dataset.artifacts("shards") == []


def test_without_a_manifest_an_artifact_is_unfinished(dataset: Dataset) -> None:
    (dataset.find("shards").path / MANIFEST).unlink()
    (info,) = dataset.artifacts("shards")
    assert (info.state, info.parameters) == ("incomplete", {})
