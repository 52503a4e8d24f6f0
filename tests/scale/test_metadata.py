"""What a rank parses of the metadata of shards, and what their commit holds, for up to 1024 ranks.

The manifests are written by the commit itself, from records of tasks that name arrays but wrote none.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage.disk.files import write_json
from gnnloom.storage.format import artifact as artifact_file
from gnnloom.storage.format.arrays import ArrayRecord, Piece
from gnnloom.storage.format.artifact import MANIFEST, Artifact, ArtifactWriter
from gnnloom.storage.format.schema import SCHEMAS
from gnnloom.storage.format.sections import planned_metadata, read_section, section_name
from gnnloom.storage.format.task_record import TaskRecord
from gnnloom.storage.shards.grid_shards import cell_path, order_path

SIZES = {"vertex": 10**10, "feature": 128, "class": 172, "target": 1}


def fake_records(folder: str, pattern: str, ranks: int) -> list[ArrayRecord]:
    """A record for every array of the registry that may be in a shard or cell, without any data."""
    found = []
    for name, spec in SCHEMAS["shards"].items():
        # Only graphs with types have folders of relations and of types.
        if name.startswith(f"{pattern}/") and not name.startswith((f"{pattern}/relation/", f"{pattern}/type/")):
            sizes = {**SIZES, "part+1": ranks + 1, "row": 1000, "row+1": 1001}
            shape = tuple(sizes.get(dim, 1000) for dim in spec.dims)
            path = f"{folder}{name.removeprefix(pattern)}"
            found.append(
                ArrayRecord(path, shape, spec.dtypes[0], spec.dims, (Piece(0, shape[0], "0" * 32, 16 * "0" * 8),))
            )
    return found


def store_records(dataset: Path, folders: dict[str, str], ranks: int) -> tuple[Artifact, int]:
    """Publish an artifact of a task for each folder; returns it and the most bytes that the commit held."""
    parameters = {"layout": "fake", "ranks": ranks, "folders": len(folders)}
    with ArtifactWriter.begin(dataset, "shards", parameters, {}) as writer:
        for folder, pattern in folders.items():
            arrays = tuple(fake_records(folder, pattern, ranks))
            record = TaskRecord(folder, arrays, {}, 1.0, 1)
            write_json(writer.work / "records" / f"{folder.replace('/', '-')}.json", record.to_json(), durable=False)
        tracemalloc.start()
        artifact = writer.commit(list(folders), {**SIZES, "part": ranks}, {})
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return artifact, held


def parsed_bytes(path: Path, arrays: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes of metadata that a reader of these arrays parses: the manifest, and the lists that it reads."""
    parsed = (path / MANIFEST).stat().st_size

    def counted(artifact: Path, section: str, digest: str) -> dict[str, ArrayRecord]:
        nonlocal parsed
        parsed += (artifact / section_name(section)).stat().st_size
        return read_section(artifact, section, digest)

    with monkeypatch.context() as patch:
        patch.setattr(artifact_file, "read_section", counted)
        artifact = Artifact(path)
        assert all(artifact.record(name).path == name for name in arrays)
    return parsed


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here has to survive a crash of the machine."""
    monkeypatch.setattr(artifact_file, "sync_paths", lambda _: None)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 25, *(pytest.param(ranks, marks=pytest.mark.long) for ranks in (64, 1024))])
def test_a_rank_of_row_shards_parses_its_own_list(
    tmp_path: Path, fast: None, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {f"row/{rank:05d}": "row/*" for rank in range(ranks)}
    artifact, held = store_records(tmp_path, folders, ranks)
    own = [record.path for record in fake_records(f"row/{ranks - 1:05d}", "row/*", ranks)]
    assert parsed_bytes(artifact.path, own, monkeypatch) <= planned_metadata(ranks, len(own), 0)
    # The commit holds the records: linear in the number of tasks.
    assert held <= (1 << 20) + 6000 * len(own) * ranks


@pytest.mark.parametrize("side", [1, 5, *(pytest.param(side, marks=pytest.mark.long) for side in (8, 32))])
def test_a_rank_of_grid_shards_parses_the_lists_of_its_cells(
    tmp_path: Path, fast: None, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    variants = ("even", "odd", "even_transposed", "odd_transposed")
    cells = [cell_path(variant, row, column) for variant in variants for row, column in np.ndindex(side, side)]
    orders = [order_path(order, row) for order in ("rows", "columns") for row in range(side)]
    folders = dict.fromkeys(cells, "grid/*/*/*") | dict.fromkeys(orders, "order/*/*")
    artifact, _ = store_records(tmp_path, folders, side * side)
    mine = [cell_path(variant, side - 1, 0) for variant in variants] + orders[-1:]
    own = [record.path for folder in mine for record in fake_records(folder, folders[folder], side * side)]
    arrays = 3 * len(variants) + 7
    assert parsed_bytes(artifact.path, own, monkeypatch) <= planned_metadata(len(folders), arrays, 0)
