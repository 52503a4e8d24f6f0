"""Verifying a dataset finds any flipped bit, in any file, and whatever does not belong there."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.disk.locks import held, is_held
from gnnloom.storage.disk.seal import check_text, seal_text
from gnnloom.storage.errors import CorruptError, GnnloomError
from gnnloom.storage.format.artifact import Artifact
from support.graphs import random_adjacency, store_graph, store_vertices
from support.partitions import random_parts, store_partition
from support.small_catalogs import store_run


def _store(catalog: Catalog) -> Dataset:
    """A dataset without anything unfinished or incomplete."""
    import numpy as np

    dataset = catalog.create("web")
    graph = store_graph(dataset, random_adjacency(30, 90, 0, symmetric=False), symmetric=False, num_blocks=2)
    store_vertices(dataset, np.ones((30, 2)), np.arange(30) % 3, np.arange(30) % 4)
    store_partition(dataset, graph, random_parts(30, 2, 0), 2)
    run = store_run(dataset, inputs={"graph": graph.artifact.key})
    (run.path / "recipe.toml").write_text(seal_text('[dataset]\nname = "web"\n'))
    return dataset


def _is_noticed(catalog: Catalog) -> bool:
    try:
        return any(finding.problem for finding in catalog["web"].verify())
    except GnnloomError:
        return True


def _kind(path: Path) -> str:
    """A file's kind: its name, with all chunks and all metadata of arrays as one kind each."""
    if path.name == "zarr.json":
        return "array" if b'"node_type": "array"' in path.read_bytes()[-200:] else f"group {path.parents[1].name}"
    return "chunk" if path.name.isdigit() else path.name


def _flip(catalog: Catalog, flips: int, seed: int) -> list[str]:
    """Flip one bit at a time, in files of all kinds alike; returns the flips that nobody noticed."""
    chosen, missed = random.Random(seed), []
    files: dict[str, list[Path]] = {}
    for path in sorted(catalog["web"].path.rglob("*")):
        if path.is_file() and path.stat().st_size:
            files.setdefault(_kind(path), []).append(path)
    kinds = sorted(files)
    for number in range(flips):
        path = chosen.choice(files[kinds[number % len(kinds)]])
        before = path.read_bytes()
        place, bit = chosen.randrange(len(before)), chosen.randrange(8)
        path.write_bytes(before[:place] + bytes([before[place] ^ (1 << bit)]) + before[place + 1 :])
        if not _is_noticed(catalog):
            missed.append(f"{path}: byte {place}, bit {bit}: {before[max(0, place - 20) : place + 20]!r}")
        path.write_bytes(before)
    assert not _is_noticed(catalog)
    return missed


@pytest.fixture
def whole(catalog: Catalog) -> Catalog:
    assert [finding for finding in _store(catalog).verify() if finding.problem] == []
    return catalog


def test_a_flipped_bit_in_any_kind_of_file_is_found(whole: Catalog) -> None:
    assert _flip(whole, 60, seed=1) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_thousand_flipped_bits_are_found(whole: Catalog) -> None:
    assert _flip(whole, 1000, seed=2) == []


def test_a_falsified_accuracy_is_found(whole: Catalog) -> None:
    run = whole["web"].run_path("first")
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines).replace('"loss": 0.5', '"loss": 0.4'))
    assert _is_noticed(whole)
    path.write_text("".join(lines))
    # Even with the checksum made right, it contradicts the metrics.
    write_json(run / "result.json", {"epochs": 3, "loss": [1.0, 0.4, 1 / 3]})
    problems = [str(finding.problem) for finding in whole["web"].verify()]
    assert any("loss differs from the metrics" in problem for problem in problems), problems
    # Tools that write the file again keep the entry of the checksum, which then is not where it belongs.
    write_json(run / "result.json", {"epochs": 3, "loss": [1.0, 0.5, 1 / 3]})
    (run / "result.json").write_text(json.dumps(json.loads((run / "result.json").read_text())))
    assert _is_noticed(whole)


def test_unknown_files_and_links_in_an_artifact_are_found(whole: Catalog, tmp_path: Path) -> None:
    path = whole["web"].graph().artifact.path
    for unknown in (path / "notes.txt", path / "block" / "00000" / "indptr" / "c" / "7"):
        unknown.write_bytes(b"x")
        (problem,) = [finding.problem for finding in whole["web"].verify() if finding.problem]
        assert f"{unknown}: gnnloom did not write this file" in str(problem)
        unknown.unlink()
    secret = tmp_path / "secret"
    secret.write_text("x")
    for link in (path / "link", whole["web"].run_path("first") / "link"):
        link.symlink_to(secret)
        assert any(f"{link}: a link" in str(finding.problem) for finding in whole["web"].verify())
        link.unlink()


def test_a_manifest_under_another_key_is_found(whole: Catalog) -> None:
    path = whole["web"].graph().artifact.path
    path.rename(path.with_name("0123456789abcdef"))
    findings = [finding for finding in whole["web"].verify() if finding.kind == "graph"]
    assert "not of graph/0123456789abcdef" in str(findings[0].problem)
    with pytest.raises(CorruptError, match="not of graph/0123456789abcdef"):
        Artifact(path.with_name("0123456789abcdef"))


def test_a_file_without_its_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "content.json"
    contents: list[dict[str, object]] = [{}, {"arrays": {}}, {"epochs": 3}]
    for content in contents:
        write_json(path, content, sealed=False)
        assert read_json(path, sealed=False) == content
        with pytest.raises(CorruptError, match="checksum"):
            read_json(path)
        write_json(path, content)
        assert read_json(path) == read_json(path, sealed=False) == content
        assert path.read_bytes().startswith(b'{\n "checksum": "')
    sealed = seal_text("[a]\nb = 1\n").encode()
    check_text(sealed, "recipe")
    for damaged in (b"[a]\nb = 1\n", b"", sealed.replace(b"1", b"2"), sealed[:-1], sealed.replace(b"#", b"")):
        with pytest.raises(CorruptError, match="checksum"):
            check_text(damaged, "recipe")


def test_looking_at_a_lock_does_not_refuse_a_writer(tmp_path: Path) -> None:
    import threading

    lock, stop = tmp_path / "lock", threading.Event()
    lock.touch()

    def look() -> None:
        while not stop.is_set():
            is_held(lock)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(200):
            with held(lock) as is_ours:
                assert is_ours
    finally:
        stop.set()
        looking.join()
