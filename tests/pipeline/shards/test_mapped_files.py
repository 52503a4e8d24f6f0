"""Vectors that the tasks of shards map are made again if they are damaged between a kill and the resumption."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from support.covering import few_of
from support.small_stages import SMALL_FILES, STAGES, make_small
from support.stopping import StoppedError, StoppingCluster


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vector", "place"),
    few_of(
        [("row shards", "numbers/by-id"), ("row shards", "numbers/bounds"), ("grid shards by part", "places")],
        [3, 700, -2],
        together=1,
    ),
)
def test_a_flipped_bit_of_a_mapped_vector_changes_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vector: tuple[str, str], place: int
) -> None:
    stage, name = vector
    make_small(monkeypatch.setattr)
    digests = []
    for is_damaged in (False, True):
        catalog = Catalog(tmp_path / f"damaged-{is_damaged}")
        STAGES[stage].prepare(catalog.create("g"), tmp_path)
        if is_damaged:
            with pytest.raises(StoppedError):
                STAGES[stage].run(catalog, tmp_path, StoppingCluster(4, SMALL_FILES))
            (path,) = catalog.root.glob(f"g/shards/*/.work/{name}")
            content = bytearray(path.read_bytes())
            content[place % len(content)] ^= 64
            path.write_bytes(content)
        digests.append(STAGES[stage].run(catalog, tmp_path, InProcessCluster(scratch=SMALL_FILES)).digest)
    assert digests[0] == digests[1]
