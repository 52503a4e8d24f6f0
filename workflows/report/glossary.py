"""The terms that a report uses."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

_TERMS: Mapping[str, str] = {
    "adjacency product": "The sparse product A H: every vertex sums the rows of its in-neighbors.",
    "best validation epoch": (
        "The first epoch with the highest validation score. Its test score is the one to report if the model is"
        " selected by validation."
    ),
    "bytes sent": "Bytes that all ranks together hand to MPI in one epoch. Evaluation is not included.",
    "collective": (
        "A message pattern in which a whole group of ranks takes part, such as a broadcast or an all-reduce. It is"
        " counted as a ring."
    ),
    "confusion matrix": "The share of the labels of each true class (row) that were predicted as each class (column).",
    "epoch": "One forward pass, one backward pass and one update of the parameters.",
    "F1": (
        "The harmonic mean of precision (how many predictions of a class are right) and recall (how many labels of the"
        " class are found). Micro F1 counts all labels together, macro F1 is the mean over classes."
    ),
    "halo": "The vertices of other ranks whose rows a rank needs for its own.",
    "imbalance": "Nonzeros of the largest part over the mean, minus one.",
    "km1": "The connectivity cut of the hypergraph: exactly the rows sent per layer and direction.",
    "maximum over mean": "The figure of the largest rank over the mean of all ranks; 1.00 is a perfect balance.",
    "nonzero": "A stored entry of the adjacency: a directed edge, or a self loop.",
    "own columns": "Columns of a shard that belong to the vertices of its rank; the others are halo columns.",
    "part": "The vertices of one rank, as the partitioner chose them.",
    "peak memory": "The most physical memory that a process used, including Python and its libraries.",
    "random partition": "Vertices assigned to parts at random; the mean number of rows sent has a closed form.",
    "rank": "One process of the training. Each rank reads only its own shard.",
    "sampling": "Time in which a rank has no batch to train on yet.",
    "shard": "The rows, features and communication partners of one rank, or a block of the adjacency.",
    "task time": "The sum of the times of all tasks; tasks run at the same time, so a stage takes less.",
    "waiting": "Time in which a rank is done with its share and others are not.",
}


def glossary() -> str:
    """Return the terms as an HTML list."""
    items = "".join(f"<dt>{escape(term)}</dt><dd>{escape(meaning)}</dd>" for term, meaning in _TERMS.items())
    return f"<dl>{items}</dl>"
