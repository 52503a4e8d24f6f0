"""The whole graph, mapped from disk, for what samples it or evaluates on it row by row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.part_members import map_part_members
from gnnloom.storage.artifacts.whole_graph import WholeGraph, map_whole_graph
from gnnloom.trainer.training.session import Session


def map_graph(session: Session) -> tuple[WholeGraph, NDArray[np.int32] | None]:
    """The graph of a session's shards, and the rank of every vertex if there are several ranks.

    All processes of a node share one copy. Communicates nothing.
    """
    dataset, inputs = session.dataset, session.shards.artifact.inputs
    graph = map_whole_graph(dataset.graph(inputs["graph"]))
    if session.comm.size == 1:
        return graph, None
    return graph, map_part_members(dataset.partition(key=inputs["partition"])).part
