"""Packages that extend gnnloom, each of one file, installed together for a user's processes."""

from __future__ import annotations

from pathlib import Path

from support.plugins import install_plugin

FORMAT = '''
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnloom.pipeline.sources.format import Format
from gnnloom.storage.option import Option
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange


@dataclass(frozen=True)
class ToyEdges:
    """The path 0 -> 1 -> ... of as many edges as each file says, every id raised by ``shift``."""

    paths: tuple[str, ...]
    shift: int = 0

    @classmethod
    def open(cls, locations, *, shift=0):
        return cls(tuple(locations), shift)

    def identity(self):
        return {"format": "toy", "shift": self.shift, "files": [Path(path).read_text() for path in self.paths]}

    def num_vertices(self):
        return None

    def ranges(self):
        return [SourceRange(number, 0, int(Path(path).read_text())) for number, path in enumerate(self.paths)]

    def read(self, span):
        source = np.arange(span.start, span.stop) + self.shift
        yield EdgeChunk(source, source + 1)


FORMAT = Format(
    name="toy",
    order=1000,
    help="a number of edges",
    open_edges=ToyEdges.open,
    options=(Option("shift", int, "Number to add to every id.", 0, least=0),),
    suffixes=("toy",),
)
'''

PARTITIONER = """
import numpy as np

from gnnloom.pipeline.partition.partitioner import Partitioner
from gnnloom.pipeline.partition.partitioner import Preset
from gnnloom.storage.option import Option


def fill(problem, part):
    from gnnloom.pipeline.partition.options import own_options

    hand = {"single": 1, "pairs": 2}[problem.options.preset]
    part[:] = (np.arange(len(part)) // hand + own_options(problem.options)["first"]) % problem.options.parts
    return {"hand": hand, "first": int(part[0])}


PARTITIONER = Partitioner(
    "toy",
    order=70,
    help="Deals the vertices like cards.",
    fill=fill,
    presets=(Preset("single", "one card at a time"), Preset("pairs", "two cards at a time")),
    options={"first": Option(default=0, help="Part of vertex 0.", least=0, most=2)},
)
"""

ALGORITHM = '''
"""Row blocks, each product twice and halved: the same result with an operator of its own."""

from gnnloom.trainer.algorithms.algorithm import Algorithm
from gnnloom.trainer.algorithms.algorithm import build_on_grid
from gnnloom.storage.option import Option
from gnnloom.trainer.data.open_shards import GRID_SHARDS


def build(context):
    from gnnloom.trainer.operators.row_blocks import RowBlocks

    rounds = context.options["toy_rounds"]

    class Toy(RowBlocks):
        def multiply(self, features, layer, dtype, *, backward):
            product = super().multiply(features, layer, dtype, backward=backward)
            for _ in range(rounds - 1):
                product = super().multiply(features, layer, dtype, backward=backward)
            return product

    return build_on_grid(context, lambda grid, adjacency: Toy(grid, adjacency, context.plan))


ALGORITHM = Algorithm(
    name="toy",
    order=10,
    help="Row blocks that repeat every product",
    source="nobody",
    axes=("row",),
    reads=GRID_SHARDS,
    build=build,
    options={"toy_rounds": Option(default=1, help="Times that a product is formed", least=1)},
)
'''

SAMPLER = '''
"""Consecutive vertices, from a random one on."""

import numpy as np

from gnnloom.storage.option import Option
from gnnloom.storage.samplers.kind import SamplerKind
from gnnloom.storage.sampling.sampler import SubgraphSampler

SAMPLER = SamplerKind(
    name="stretch",
    help="consecutive vertices",
    source="nobody",
    covers_epoch=False,
    place=(__name__, "StretchSampler"),
    options={"stretch_step": Option(default=1, help="Distance between vertices", least=1)},
    arguments={"stretch_step": "step"},
)


class StretchSampler(SubgraphSampler):
    kind = "stretch"

    def __init__(self, graph, seed, size, step=1):
        super().__init__(graph, seed, size)
        self.step = step

    def draw(self, epoch, batch):
        first = int(self._key(epoch, batch) % np.uint64(self.graph.num_vertices))
        return np.unique((first + self.step * np.arange(self.size)) % self.graph.num_vertices)
'''
NEIGHBOR_SAMPLER = '''
"""The neighbors with the lowest numbers."""

from dataclasses import replace

import numpy as np

from gnnloom.storage.neighbor_samplers.kind import ALL, NeighborSamplerKind
from gnnloom.storage.sampling.layers.graph_view import MatrixView, Rows

NEIGHBOR_SAMPLER = NeighborSamplerKind(
    name="lowest", help="the neighbors with the lowest numbers", source="nobody", place=("lowest", "LowestView")
)


class LowestView(MatrixView):
    def rows(self, vertices, draw):
        whole = super().rows(vertices, replace(draw, fanout=ALL))
        first, length = whole.indptr[:-1], np.diff(whole.indptr)
        kept = length if draw.takes_all else np.minimum(length, draw.fanout)
        chosen = np.arange(len(whole.entry)) - np.repeat(first, length) < np.repeat(kept, length)
        indptr = np.concatenate([[0], np.cumsum(kept)])
        return Rows(indptr, whole.column[chosen], whole.entry[chosen], whole.row_nnz)
'''

MODE = '''
"""Subgraphs, on each of which a step is taken several times."""

from dataclasses import replace

from gnnloom.storage.option import Option
from gnnloom.trainer.modes.epochs.subgraph import SubgraphMode
from gnnloom.trainer.modes.subgraph import MODE as SUBGRAPH

MODE = replace(
    SUBGRAPH,
    name="again",
    order=10,
    help="Every epoch several times",
    place=(__name__, "AgainMode"),
    options={**SUBGRAPH.options, "again_rounds": Option(default=1, help="Times that an epoch is repeated", least=1)},
)


class AgainMode(SubgraphMode):
    def _numbers(self):
        for number in super()._numbers():
            yield from [number] * self.context.options["again_rounds"]

    def train_epoch(self, epoch, update):
        rounds = self.context.options["again_rounds"]
        return sum(super(AgainMode, self).train_epoch(epoch, update) for _ in range(rounds)) / rounds
'''

TASK = '''
"""Ordered classes."""

import torch

from gnnloom.storage.option import Option
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.tasks.objectives.by_element import MaskedBinaryCrossEntropy
from gnnloom.trainer.tasks.objectives.classes import Classes
from gnnloom.trainer.tasks.objectives.objective import Objective
from gnnloom.trainer.tasks.task import CODES, Figure, Task

TASK = Task(
    name="ordinal",
    order=10,
    help="Ordered classes",
    array="label",
    place=(__name__, "Steps"),
    width=lambda sizes: sizes.num_classes - 1,
    figures=(Figure("accuracy", "accuracy", is_share=True), Figure("distance", "distance", lower=True, judges=True)),
    predicts={"label": ("vertex",), "score": ("vertex", "step")},
    column="level",
    options={"ordinal_threshold": Option(default=0.0, help="Score from which a step is a yes")},
)


# A class above k is a yes to the steps 0 to k - 1 (Frank and Hall, ECML 2001).
class Steps(Classes):
    details = Objective.details

    def task_loss(self, layout, labels, mask):
        label = labels.label.unsqueeze(1)
        above = (label > torch.arange(self.num_outputs)).to(torch.int8).masked_fill(label < 0, -1)
        return MaskedBinaryCrossEntropy(layout, above, mask, self.num_outputs)

    def metrics(self, layout, labels):
        def measure(scores):
            error = (self.predict(layout, scores)["label"] - labels.label).abs()
            chosen = [(labels.split == code) & (labels.label >= 0) for code in CODES.values()]
            sums = torch.tensor([[(error[rows] == 0).sum(), error[rows].sum(), rows.sum()] for rows in chosen])
            sums *= layout.speaks_for_rows
            layout.grid.comm.all_reduce(sums, Kind.METRICS)
            return {
                f"{prefix}_{name}": float(row[number] / row[2]) if row[2] else None
                for number, name in enumerate(("accuracy", "distance"))
                for prefix, row in zip(CODES, sums, strict=True)
            }

        return measure

    def predict(self, layout, scores):
        whole = self.whole(layout, scores)
        threshold = self.options["ordinal_threshold"]
        return {"label": (whole > threshold).sum(1).to(torch.int32), "score": whole}
'''

DECODER = '''
"""The dot product, times a number."""

from gnnloom.storage.option import Option
from gnnloom.trainer.links.decoder import Decoder
from gnnloom.trainer.links.decoders.kind import DecoderKind

DECODER = DecoderKind(
    name="scaled",
    order=10,
    help="Dot product times a number",
    place=(__name__, "Scaled"),
    is_symmetric=True,
    gives_several=False,
    options={"decoder_scale": Option(default=1.0, help="Factor of the dot product", above=0.0)},
)


class Scaled(Decoder):
    gives_several = False
    is_symmetric = True

    def forward(self, source, target):
        return (source * target).sum(1) * self.options["decoder_scale"]
'''

#: Of each package: its module, its source, the group of its entry point and the constant that holds its descriptor.
_DESCRIPTORS = (
    ("toy_format", FORMAT, "gnnloom.formats", "FORMAT"),
    ("toy_partitioner", PARTITIONER, "gnnloom.partitioners", "PARTITIONER"),
    ("toy_algorithm", ALGORITHM, "gnnloom.algorithms", "ALGORITHM"),
    ("stretch", SAMPLER, "gnnloom.samplers", "SAMPLER"),
    ("lowest", NEIGHBOR_SAMPLER, "gnnloom.neighbor_samplers", "NEIGHBOR_SAMPLER"),
    ("again", MODE, "gnnloom.modes", "MODE"),
    ("ordinal", TASK, "gnnloom.tasks", "TASK"),
    ("scaled", DECODER, "gnnloom.decoders", "DECODER"),
)


def install_added(folder: Path) -> dict[str, str]:
    """Write all packages into a folder; returns the environment in which processes find them."""
    (*_, environment) = (install_plugin(folder, *descriptor) for descriptor in _DESCRIPTORS)
    return environment
