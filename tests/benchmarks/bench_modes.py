"""Test accuracy of every mode of training over seeds, and the time to reach it, on a graph of planted communities.

    python tests/benchmarks/bench_modes.py [--scale small|full] [--hard] [--modes NAMES] [--folder DIR] [--out DIR]

`gnnloom generate sbm` with 16 communities, homophily 0.5 (half of the edges are drawn within a community) and 32
features: the community's centroid plus noise of 6 times its standard deviation. With ``--hard`` the homophily is 0.4,
and every mode trains for twice as many epochs. A tenth of the vertices is for training. A GCN of two layers with 32
hidden units, Adam and a cosine schedule, one rank and one thread; seeds take turns. A mode is within noise of the whole
graph if its mean accuracy is not below that of full-graph training by more than three standard errors of the difference
of the two means. For comparison, the features alone are classified by the nearest mean of the training vertices of a
class, which is Bayes' rule with estimated means. Training from samples on disk must have the losses of the training
with the same seed that draws its own.

Seconds are wall time of training without evaluations; those to 99 % are until the first evaluation with at least 99 %
of the mean accuracy of full-graph training. Prints a table, then lines ``RESULT name value unit``, and writes a report
that compares the runs of the first seed, with accuracy over seconds (``progress.png``).
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
from commands import gnnloom

from gnnloom.storage import Catalog
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.storage.runs.run import Run


@dataclass(frozen=True)
class Scale:
    """Sizes of the benchmark.

    Attributes:
        batch: training vertices in a batch of sampled neighbors.
        rounds: its epochs.
        homophily: share of the edges that are drawn within a community.
        longer: how many times as many epochs the modes without sampled neighbors have as on the easier graph.
    """

    vertices: int
    edges: int
    seeds: int
    batch: int
    rounds: int
    homophily: float = 0.5
    longer: int = 1


SCALES = {"small": Scale(20_000, 400_000, 2, 128, 10), "full": Scale(1_000_000, 20_000_000, 5, 1024, 3)}
GRAPH = ("--classes", "16", "--dim", "32", "--noise", "6")
MODEL = ("--model", "gcn", "--hidden", "32", "--schedule", "cosine", "--feature-norm", "none", "--threads", "1")
FANOUT = "10,10"
#: Share of the vertices in a batch.
DRAWN, DIVIDED = 0.2, 0.25
#: Standard errors of the difference that count as noise.
ERRORS = 3
HEADS = ("mode", "epochs", "accuracy", "deviation", "points", "in noise", "s", "s to 99 %", "cpu s")


def options_of(mode: str, scale: Scale) -> tuple[str, ...]:
    """Options of `gnnloom train` for a mode."""
    drawn = ("--batch-size", str(round(DRAWN * scale.vertices)), *_course(12 * scale.longer, 2, 0.1))
    sampled = (*_neighbor(scale), "--fanout", FANOUT, "--batch-size", str(scale.batch))
    return {
        "full": _course(40 * scale.longer, 4, 0.2),
        "frontier": ("--mode", "subgraph", "--frontier", str(round(DRAWN * scale.vertices / 8)), *drawn),
        "edge": ("--mode", "subgraph", "--sampler", "edge", *drawn),
        "walk": ("--mode", "subgraph", "--sampler", "walk", *drawn),
        "vertex": ("--mode", "subgraph", "--sampler", "vertex", *drawn),
        "minibatch": (
            "--mode",
            "minibatch",
            "--batch-size",
            str(round(DIVIDED * scale.vertices)),
            *_course(12 * scale.longer, 2, 0.1),
        ),
        "neighbor": sampled,
        "labor": (*sampled, "--neighbor-sampler", "labor"),
    }[mode]


#: The modes of a run, full first, and others that can be asked for.
MODES = ("full", "frontier", "edge", "minibatch", "neighbor")
MORE = ("walk", "vertex", "labor")


def _course(epochs: int, between: int, rate: float) -> tuple[str, ...]:
    return ("--epochs", str(epochs), "--eval-every", str(between), "--lr", str(rate))


def _neighbor(scale: Scale) -> tuple[str, ...]:
    return ("--mode", "neighbor", *_course(scale.rounds, 1, 0.02))


@dataclass(frozen=True)
class Trained:
    """A finished run.

    Attributes:
        processor: seconds of the whole command.
        accuracies: test accuracies, and the seconds of training at each.
    """

    loss: float
    epochs: int
    processor: float
    accuracies: list[tuple[float, float]]

    @property
    def last(self) -> float:
        return self.accuracies[-1][1]

    @property
    def seconds(self) -> float:
        return self.accuracies[-1][0]

    def seconds_to(self, accuracy: float) -> float:
        """Seconds until an accuracy was measured that is not below; infinite if none was."""
        return next((seconds for seconds, found in self.accuracies if found >= accuracy), float("inf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    others = ",".join(MODES[1:])
    parser.add_argument("--hard", action="store_true", help="on a graph whose neighbors say less")
    parser.add_argument("--modes", default=others, help=f"in addition to full, also of {', '.join(MORE)} [%(default)s]")
    parser.add_argument("--seeds", type=int, help="seeds instead of those of --scale, 2 or more")
    parser.add_argument("--folder", type=Path, help="folder for temporary files [default: the system's]")
    parser.add_argument("--out", type=Path, default=Path("build/modes"), help="folder of the report [%(default)s]")
    options = parser.parse_args()
    scale = SCALES[options.scale]
    if options.hard:
        scale = replace(scale, homophily=0.4, longer=2, rounds=2 * scale.rounds)
    unknown = set(options.modes.split(",")) - {*MODES, *MORE}
    if unknown:
        parser.error(f"unknown modes: {', '.join(sorted(unknown))}")
    modes = [mode for mode in (*MODES, *MORE) if mode in ("full", *options.modes.split(","))]
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-modes-") as folder:
        _prepare(folder, scale)
        found: dict[str, list[Trained]] = {mode: [] for mode in modes}
        for seed in range(max(2, options.seeds or scale.seeds)):
            for mode in modes:
                found[mode].append(_train(folder, f"{mode}-{seed}", seed, options_of(mode, scale)))
                last = found[mode][-1]
                print(f"{mode}, seed {seed}: {last.last:.4f} in {last.seconds:.1f} s", file=sys.stderr, flush=True)
        _report(found)
        if "neighbor" in modes:
            _report_samples(folder, scale, found["neighbor"][0])
        gnnloom(folder, "report", "--compare", *(f"planted/{mode}-0" for mode in modes), "--out", str(options.out))
        print(f"accuracy over seconds: {options.out / 'progress.png'}")


def _prepare(folder: str, scale: Scale) -> None:
    sizes = ("--vertices", str(scale.vertices), "--edges", str(scale.edges), "--homophily", str(scale.homophily))
    gnnloom(folder, "generate", "planted", "sbm", *sizes, *GRAPH)
    gnnloom(folder, "partition", "planted", "--parts", "1", "--method", "block")
    gnnloom(folder, "shard", "planted", "--parts", "1")
    alone = _features_alone(folder)
    print(f"{scale.vertices:,} vertices, {scale.edges:,} drawn edges; features alone: {alone:.1%}", flush=True)
    print(f"RESULT modes_features_alone {alone:.4f} accuracy")


def _features_alone(folder: str) -> float:
    """Test accuracy of the nearest class mean, which is Bayes' rule for equally likely classes with the same noise."""
    vertices = Catalog(folder)["planted"].vertices()
    feature, label, split = vertices.feature(), vertices.label(), vertices.split()
    known = split == SPLIT["train"]
    mean = np.stack([feature[known & (label == each)].mean(0) for each in range(vertices.num_classes)])
    nearest = (feature @ mean.T - (mean**2).sum(1) / 2).argmax(1)
    return float((nearest == label)[split == SPLIT["test"]].mean())


def _train(folder: str, run: str, seed: int, options: Sequence[str]) -> Trained:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    gnnloom(folder, "train", f"planted/{run}", *MODEL, *options, "--seed", str(seed))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = Run.open(Catalog(folder).dataset("planted"), run).metrics()
    times = accumulate(line["seconds"] for line in lines)
    pairs = zip(times, lines, strict=True)
    measured = [(time, line["test_accuracy"]) for time, line in pairs if "test_accuracy" in line]
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Trained(lines[-1]["loss"], len(lines), processor, measured)


def _report(found: dict[str, list[Trained]]) -> None:
    """Print the table and the results."""
    print("".join(f"{head:>11}" for head in HEADS))
    whole = [run.last for run in found["full"]]
    results = []
    for mode, runs in found.items():
        last = [run.last for run in runs]
        mean, deviation = statistics.mean(last), statistics.stdev(last)
        below = mean - statistics.mean(whole)
        error = ((statistics.variance(last) + statistics.variance(whole)) / len(last)) ** 0.5
        fits = "yes" if below >= -ERRORS * error else "no"
        seconds = {
            "trained": statistics.median(run.seconds for run in runs),
            "to_99": statistics.median(run.seconds_to(0.99 * statistics.mean(whole)) for run in runs),
            "processor": statistics.median(run.processor for run in runs),
        }
        cells = (mode, runs[0].epochs, f"{mean:.4f}", f"{deviation:.4f}", f"{100 * below:+.2f}", fits)
        print("".join(f"{cell:>11}" for cell in (*cells, *(f"{each:.1f}" for each in seconds.values()))))
        scores = {"accuracy": mean, "deviation": deviation, "difference": below, "error": error}
        results += [f"RESULT modes_{mode}_{name} {value:.5f} accuracy" for name, value in scores.items()]
        results += [f"RESULT modes_{mode}_{name} {value:.4g} s" for name, value in seconds.items()]
    print(f"in noise: at most {ERRORS} standard errors of the difference below full; seconds are medians over seeds")
    print("\n".join(results), flush=True)


def _report_samples(folder: str, scale: Scale, drawn: Trained) -> None:
    """Train from samples on disk with the first seed; the losses must be those of the training that drew its own."""
    given = ("--fanout", FANOUT, "--batch-size", str(scale.batch), "--epochs", str(scale.rounds), "--seed", "0")
    samples = gnnloom(folder, "sample", "planted", *given)
    read = _train(folder, "samples-0", 0, (*_neighbor(scale), "--samples", samples["key"]))
    if read.loss != drawn.loss:
        raise SystemExit(f"the losses differ: {read.loss} from disk, {drawn.loss} without")
    print(f"from samples on disk: {read.last:.4f} as without, {samples['bytes'] / 1e9:.2f} GB, {read.seconds:.1f} s")
    print(f"RESULT modes_samples_accuracy {read.last:.5f} accuracy\nRESULT modes_samples_trained {read.seconds:.4g} s")


if __name__ == "__main__":
    main()
