"""Partitions a stored graph of any size in rounds of tasks, and prints the key and the figures as JSON.

python tests/benchmarks/partition_in_rounds.py CATALOG NAME PARTS
"""

from __future__ import annotations

import json
import sys

from gnnloom.pipeline.partition.partitioner import LevelSteps
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog


def main() -> None:
    root, name, parts = sys.argv[1:]
    dataset = Catalog(root)[name]
    options = PartitionOptions(int(parts), "multilevel", preset="streaming", exchange="cover")
    partition = partition_graph(dataset, dataset.graph(), options, InProcessCluster(), steps=LevelSteps(few_pins=0))
    print(json.dumps({"key": partition.artifact.key, **partition.quality}))


if __name__ == "__main__":
    main()
