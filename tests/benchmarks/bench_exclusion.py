"""What it costs that steps exclude the edges that they predict: epochs with and without, in turn, in one job.

    python tests/benchmarks/bench_exclusion.py [--scale tiny|small|full] [--models gcn,sage,gin,gat] [--ranks 1,2]
                                               [--rounds N] [--catalog FOLDER]

Two layers of 128 columns on R-MAT (Graph500's parameters), p2p, float32, one thread for each rank. A tenth of the edges
is excluded; see exclusion_ranks.py. Prints a table and lines ``RESULT name value unit``; the goal is at most 1.15 times
the epoch without exclusion, for the models that multiply.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from graphs import catalog_in, generated, row_shards
from launching import ranks_of

from gnnloom.trainer.config.train_config import TrainConfig

SCALES = {"tiny": 8, "small": 11, "full": 17}
WIDTH = 128
GOAL = 1.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--models", type=lambda text: text.split(","), default=["gcn", "sage", "gin", "gat"])
    parser.add_argument("--ranks", type=lambda text: [int(item) for item in text.split(",")], default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--catalog", type=Path, help="folder that keeps the graph [default: a temporary one]")
    options = parser.parse_args()
    with catalog_in(options.catalog, None) as catalog:
        name = f"rmat-{SCALES[options.scale]}"
        dataset = generated(catalog, name, "rmat", scale=SCALES[options.scale], edge_factor=16)
        for ranks in options.ranks:
            shards = row_shards(dataset, ranks)
            for model in options.models:
                _measure(
                    TrainConfig.of(catalog=str(catalog), dataset=name, ranks=ranks, shards=shards, model=model),
                    options.rounds,
                )


def _measure(config: TrainConfig, rounds: int) -> None:
    found = ranks_of("exclusion_ranks.py", config, {}, [str(WIDTH), str(rounds)])
    case = f"{config.data.dataset}-{config.model.name}-{config.algorithm.ranks}"
    print(f"{case}: " + ", ".join(f"{name} {value}" for name, value in found.items()))
    for name in ("", " processor"):
        ratio = found[f"ratio{name}"]
        print(f"RESULT exclusion-{case}{name.replace(' ', '-')} {ratio:.3f} x")
        if name and config.model.name != "gat":
            print(f"GOAL exclusion-{case} at most {GOAL}: {'met' if ratio <= GOAL else 'not met'}")


if __name__ == "__main__":
    main()
