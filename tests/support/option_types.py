"""Writes the types of the keywords of the Python API, for type checkers and editors, from the options.

python tests/support/option_types.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

import gnnloom.workflows.api.options
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.links.options import DrawOptions, FileOptions, HardOptions
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.sources.format import formats
from gnnloom.pipeline.sources.generators.generator import generators
from gnnloom.pipeline.sources.vertex_data.kind import vertex_kinds
from gnnloom.storage.option import Option, options_of
from gnnloom.workflows.api.cluster import CLUSTER
from gnnloom.workflows.api.options.loader_options import loader_options
from gnnloom.workflows.api.options.plan_options import plan_options
from gnnloom.workflows.api.options.predict_options import predict_options
from gnnloom.workflows.api.options.train_options import train_options
from gnnloom.workflows.api.propagate import propagate_options

FILE = Path(gnnloom.workflows.api.options.__file__).with_name("option_types.pyi")
_HEAD = """\
# The keywords of the functions, for type checkers and editors. `python tests/support/option_types.py` writes this file.

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from gnnloom.workflows.api.options.keywords import ArtifactLike
"""
#: Keywords of `predict` that decide what it returns.
_OF_OVERLOADS = {"out", "pairs", "top", "of"}
_NAMES = {tuple[int, ...]: "int | Sequence[int]", tuple[str, ...]: "Sequence[str]", Path: "Path | str"}


def option_types() -> str:
    """The text of the file."""
    in_signatures = {"feature", "label", "split", "target", "ids_file"}
    features = {name: option for name, option in _of(vertex_kinds().values()).items() if name not in in_signatures}
    partition = {name: option for name, option in options_of(PartitionOptions).items() if name != "parts"}
    classes = {
        "IngestKeywords": {
            **options_of(IngestOptions),
            **options_of(TypedOptions),
            **options_of(VertexOptions),
            **_of(formats().values()),
        },
        "GenerateKeywords": _of(generators().values()),
        "FeaturesKeywords": {**options_of(VertexOptions), **features},
        "PartitionKeywords": partition,
        "SampleKeywords": options_of(SampleOptions),
        "DrawKeywords": options_of(DrawOptions),
        "LinksKeywords": options_of(FileOptions),
        "HardKeywords": options_of(HardOptions),
    }
    blocks = [_HEAD, _class("ClusterKeywords", "TypedDict", CLUSTER)]
    blocks += [_class(name, "ClusterKeywords", options) for name, options in classes.items()]
    blocks += [_class("PropagateKeywords", "TypedDict", propagate_options())]
    blocks += [_class("PlanKeywords", "TypedDict", plan_options())]
    predict = {name: each for name, each in predict_options().items() if name not in _OF_OVERLOADS}
    blocks += [_class("PredictKeywords", "TypedDict", predict)]
    by_relation = {"fanout": "int | Sequence[int] | Mapping[str | tuple[str, str, str], int | Sequence[int]]"}
    blocks += [_class("LoaderKeywords", "TypedDict", loader_options(), by_relation)]
    return "\n".join([*blocks, _class("TrainKeywords", "TypedDict", train_options())])


def _of(sources: Iterable[object]) -> dict[str, Option]:
    """The options of all descriptors of a kind."""
    return {option.name: option for source in sources for option in getattr(source, "options")}  # noqa: B009


#: Options whose value is the key of an artifact, or the artifact.
_ARTIFACTS = {"graph", "links", "propagated", "samples", "shards", "vertex_data", "vertices"}


def _class(name: str, base: str, options: Mapping[str, Option], others: Mapping[str, str] | None = None) -> str:
    types = {key: _type(option) for key, option in options.items()} | dict(others or {})
    lines = [f"    {key}: {each}\n" for key, each in types.items()]
    return f"class {name}({base}, total=False):\n{''.join(lines)}"


def _type(option: Option) -> str:
    name = _NAMES.get(option.kind) or option.kind.__name__
    if option.name in _ARTIFACTS and option.kind in {str, tuple[str, ...]}:
        name = "Sequence[ArtifactLike]" if option.kind == tuple[str, ...] else "ArtifactLike"
    texts = " | str" if option.words or (option.is_size and option.name == "memory") else ""
    # The names of columns, which the command line has in one text.
    texts += " | Sequence[str]" if option.name == "columns" else ""
    none = " | None" if option.default is None or option.default is dataclasses.MISSING else ""
    return name + texts + none


if __name__ == "__main__":
    FILE.write_text(option_types())
