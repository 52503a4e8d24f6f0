"""A file that is not a Dask scheduler's is refused before anything waits for a scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.storage.errors import InputError


@pytest.mark.parametrize(
    "text", ["0 1\n", "{}", "[]", '{"address": 5}', '{"address": ""}', '{"address": "tcp://no port"}']
)
def test_a_file_without_an_address_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(text)
    for path in (file, tmp_path, tmp_path / "absent"):
        with (
            pytest.raises(InputError, match=str(path)),
            open_cluster(ClusterOptions("scheduler-file", None, 1, str(path))),
        ):
            pass
