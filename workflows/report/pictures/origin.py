"""Pictures of the origin of a run: the time of the stages before training, and the lineage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.upkeep.lineage import Node
from gnnloom.storage.wording import counted
from gnnloom.workflows.report.facts import RunFacts
from gnnloom.workflows.report.pictures.style import SERIES, WHOLE, Picture, color, draw_grid, in_seconds, new_axes

#: Size of a box of the lineage and the gap below it, in inches; boxes are narrower if there are many columns.
_BOX_WIDTH, _BOX_HEIGHT, _GAP = 2.15, 1.0, 0.22
#: Minimum width between two columns, for arrows, in inches.
_ARROW = 0.3
#: Number of letters of a line that fit in a box of full width, and maximum number of letters of a key.
_LINE_LETTERS, _KEY_LETTERS = 30, 18
#: Widths of a letter of a kind and of a key, in inches.
_KIND_LETTER, _KEY_LETTER = 0.08, 0.058


def stages_picture(facts: RunFacts) -> Picture | None:
    """Draw the task time of every phase of every stage; None if all artifacts were removed."""
    phases = [
        (f"{artifact.kind}: {phase}", artifact.kind, seconds)
        for artifact in facts.artifacts
        for phase, seconds in artifact.measured["task_seconds"].items()
    ]
    if not phases:
        return None
    names, kinds, seconds = zip(*phases, strict=True)
    scaled, unit = in_seconds(seconds)
    figure, axes = new_axes(WHOLE, 0.9 + 0.24 * len(names))
    shades = {kind: SERIES[number % len(SERIES)] for number, kind in enumerate(dict.fromkeys(kinds))}
    bars = axes.barh(range(len(names)), scaled, height=0.66, color=[color(shades[kind]) for kind in kinds])
    axes.bar_label(bars, [f"{value:.3g}" for value in scaled], padding=3, fontsize=8, color=color("muted"))
    axes.set_yticks(range(len(names)), names)
    # The first phase at the top: Matplotlib counts bars from the bottom.
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(scaled) or 1.0)
    axes.set_xlabel(f"{unit}, sum over tasks")
    draw_grid(axes, "x")
    rows = [(name, f"time  {value:.3g} {unit}") for name, value in zip(names, scaled.tolist(), strict=True)]
    return Picture("stages", "Task time by phase", figure, rows=rows)


def lineage_picture(facts: RunFacts) -> Picture:
    """Draw the lineage of the run, with sources on the left and the run on the right."""
    levels = _levels(facts.lineage)
    columns: list[list[str]] = [[] for _ in range(max(levels.values()) + 1)]
    for name in facts.lineage:
        columns[levels[name]].append(name)
    # An arrow that skips a column with an odd number of boxes must bend around the middle one.
    passes = any(levels[name] - levels[source] > 1 for name, source in _edges(facts.lineage))
    is_bent = passes and any(len(column) % 2 for column in columns[1:-2])
    # A bent arrow needs about half a row more.
    rows = max(map(len, columns)) + 0.6 * is_bent
    figure, axes = new_axes(WHOLE, rows * (_BOX_HEIGHT + _GAP) + 0.1)
    axes.set_axis_off()
    axes.set_xlim(0, WHOLE)
    axes.set_ylim(0, rows * (_BOX_HEIGHT + _GAP))
    width = min(_BOX_WIDTH, (WHOLE + _ARROW) / len(columns) - _ARROW)
    corners = _corners(columns, rows, width)
    for name, node in facts.lineage.items():
        _draw_box(axes, corners[name], width, name, _describe(facts, name, node))
    for name, source in _edges(facts.lineage):
        bend = -0.4 if is_bent and levels[name] - levels[source] > 1 else 0.0
        _draw_arrow(axes, corners[source], width, corners[name], bend)
    lines = [
        (
            name,
            f"made from  {', '.join(source for source in node.inputs.values() if source in facts.lineage)}",
            f"what it is  {', '.join(_describe(facts, name, node))}",
        )
        for name, node in facts.lineage.items()
    ]
    return Picture("lineage", "Lineage", figure, rows=lines)


def _edges(nodes: Mapping[str, Node]) -> list[tuple[str, str]]:
    """Return pairs of an artifact or run and one of its inputs."""
    return [(name, source) for name, node in nodes.items() for source in node.inputs.values() if source in nodes]


def _levels(nodes: Mapping[str, Node]) -> dict[str, int]:
    """Return the longest distance of each node from one without inputs; inputs come first in ``nodes``."""
    levels: dict[str, int] = {}

    def level(name: str) -> int:
        if name not in levels:
            known = [source for source in nodes[name].inputs.values() if source in nodes]
            # The longest path, so that every arrow points to the right.
            levels[name] = max((level(source) + 1 for source in known), default=0)
        return levels[name]

    for name in nodes:
        level(name)
    return levels


def _corners(columns: Sequence[Sequence[str]], rows: float, width: float) -> dict[str, tuple[float, float]]:
    """Return the lower left corners of boxes of some width, in centered columns that fill the picture."""
    step = (WHOLE - width) / max(1, len(columns) - 1)
    corners = {}
    for number, column in enumerate(columns):
        offset = (rows - len(column)) / 2
        for position, name in enumerate(column):
            row = rows - 1 - position - offset
            # At most 3 inches between columns, or a short lineage would have long arrows.
            corners[name] = (min(number * step, number * 3.0), row * (_BOX_HEIGHT + _GAP) + _GAP / 2)
    return corners


def _draw_box(axes: Axes, corner: tuple[float, float], width: float, name: str, lines: Sequence[str]) -> None:
    kind, _, key = name.replace("runs/", "run/").partition("/")
    x, y = corner
    box = FancyBboxPatch(
        (x + 0.05, y),
        width - 0.1,
        _BOX_HEIGHT,
        boxstyle="round,pad=0,rounding_size=0.07",
        facecolor=color("page"),
        edgecolor=color("line"),
        linewidth=0.9,
    )
    axes.add_patch(box)
    axes.text(x + 0.15, y + 0.82, kind, fontsize=9, fontweight="bold", color=color("ink"), va="center")
    fits = width / _BOX_WIDTH
    key = _cut(key, min(_KEY_LETTERS, int((width - 0.4 - _KIND_LETTER * len(kind)) / _KEY_LETTER)))
    axes.text(x + width - 0.15, y + 0.82, key, fontsize=7, color=color("muted"), va="center", ha="right")
    for number, line in enumerate(lines):
        axes.text(
            x + 0.15,
            y + 0.58 - 0.2 * number,
            _cut(line, int(_LINE_LETTERS * fits)),
            fontsize=7.5,
            color=color("muted"),
            va="center",
        )


def _draw_arrow(
    axes: Axes, source: tuple[float, float], width: float, target: tuple[float, float], bend: float
) -> None:
    begin = (source[0] + width - 0.05, source[1] + _BOX_HEIGHT / 2)
    end = (target[0] + 0.05, target[1] + _BOX_HEIGHT / 2)
    arrow = FancyArrowPatch(
        begin,
        end,
        arrowstyle="-|>",
        mutation_scale=9,
        connectionstyle=f"arc3,rad={bend}",
        shrinkA=0,
        shrinkB=0,
        color=color("gray"),
        linewidth=1.0,
        # Below the boxes.
        zorder=0.5,
    )
    axes.add_patch(arrow)


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _describe(facts: RunFacts, name: str, node: Node) -> list[str]:
    """Return a few lines about a node."""
    if node.state == "gone":
        return ["removed"]
    if name.startswith("runs/"):
        return [
            f"{node.parameters.get('model')}, {node.parameters.get('algorithm')}",
            f"ranks: {node.parameters.get('ranks')}, epochs: {len(facts.metrics):,}",
        ]
    artifact = next((each for each in facts.artifacts if f"{each.kind}/{each.key}" == name), None)
    return [node.state] if artifact is None else _describe_artifact(artifact)


def _describe_artifact(artifact: Artifact) -> list[str]:
    parameters, sizes = artifact.parameters, artifact.sizes
    if artifact.kind in {"graph", "transpose"}:
        return [counted(sizes["vertex"], "vertex"), counted(artifact.facts["nnz"], "nonzero"), *_source(parameters)]
    if artifact.kind == "vertices":
        counts = [counted(sizes.get("feature", 0), "feature"), counted(artifact.facts.get("num_classes", 0), "class")]
        return [*counts, *_source(parameters)]
    if artifact.kind == "partition":
        return [
            f"{parameters['method']}, {counted(parameters['parts'], 'part')}",
            f"km1 {artifact.facts['quality']['km1']:,}",
        ]
    if artifact.kind == "links":
        counts = artifact.facts["num_pairs"]
        # One line would be cut off in a narrow box.
        held_out = ", ".join(f"{counts[split]:,} {split}" for split in ("valid", "test"))
        return [counted(counts["train"], "training pair"), held_out, str(parameters.get("method", ""))]
    if artifact.kind == "propagated":
        ppr = parameters["ppr"]
        way = parameters["normalization"] if ppr is None else f"{parameters['normalization']}, PageRank {ppr:g}"
        return [f"{counted(parameters['steps'], 'step')} of {parameters['of']}", way]
    if parameters["layout"] == "row":
        return [counted(parameters["parts"], "row shard"), str(parameters.get("method", ""))]
    return [f"{'x'.join(map(str, parameters['grid']))} blocks", f"{parameters['permutation']} permutation"]


def _source(parameters: Mapping[str, Any]) -> list[str]:
    """Return the source of edges or vertex data, if it is known."""
    source = parameters.get("source", {})
    names = [str(file.get("name")) for file in source.get("files", [])]
    more = f" + {len(names) - 1}" if len(names) > 1 else ""
    return [f"{source.get('format', '')}: {names[0]}{more}" if names else str(source.get("format", ""))]
