"""What ranks need of their machines is checked while they can still report one error together."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.comm.transports.registry import LaunchedRank
from gnnloom.trainer.job.in_place import RanksInPlace
from gnnloom.trainer.job.stop import StopRequest
from gnnloom.workflows.run.cluster_of_ranks import check_scratch
from support.lone import LoneCommunicator

RANKS = RanksInPlace(LoneCommunicator(), "gnnloom run", LaunchedRank(), StopRequest())


def test_scratch_space_that_all_ranks_see_is_left_empty(tmp_path: Path) -> None:
    check_scratch(RANKS, tmp_path / "scratch")
    assert not list((tmp_path / "scratch").iterdir())


def test_scratch_space_on_the_disk_of_another_node_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: False)
    with pytest.raises(CollectiveError, match="does not see what rank 0 writes there") as caught:
        check_scratch(RANKS, tmp_path)
    assert (caught.value.code, caught.value.reports) == (3, True)


def test_scratch_space_that_cannot_be_made_is_one_error_of_all_ranks(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CollectiveError, match="file/scratch: Not a directory") as caught:
        check_scratch(RANKS, tmp_path / "file" / "scratch")
    assert caught.value.code == 3
