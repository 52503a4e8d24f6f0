"""Figures of the manual as SVG inside the page, so that text and lines take the color of the page, light or dark."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_SIZE = 120
_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="currentColor"/></marker></defs>'
)


def figure(name: str) -> str:
    """Return one figure with its caption."""
    draw, width, height, caption = _FIGURES[name]
    shapes = "".join(draw())
    label = re.sub(r"</?code>", "", caption)
    # Wider than drawn, as far as the page allows.
    return (
        f'<figure class="figure"><svg viewBox="0 0 {width} {height}" width="{width * 1.3:g}" role="img"'
        f' aria-label="{label}" font-family="sans-serif" font-size="13" fill="currentColor">{_HEAD}{shapes}</svg>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _rect(x: float, y: float, width: float, height: float, rank: int | None = None, strength: float = 0.55) -> str:
    fill = "none" if rank is None else f"var(--rank-{rank})"
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" fill-opacity="{strength}"'
        ' stroke="currentColor" stroke-opacity=".5"/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "middle", weight: str = "normal") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}">{text}</text>'


def _arrow(*points: tuple[float, float]) -> str:
    path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
    return f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="1.3" marker-end="url(#head)"/>'


def _matrix(
    x: float, y: float, title: str, rows: int, columns: int, rank: Callable[[int, int], int], width: float = _SIZE
) -> list[str]:
    """A matrix of equal blocks, each in the color of its rank and with the rank's number."""
    high, wide = _SIZE / rows, width / columns
    shapes = [_text(x + width / 2, y - 10, title, weight="bold")]
    for i in range(rows):
        for j in range(columns):
            owner = rank(i, j)
            shapes.append(_rect(x + j * wide, y + i * high, wide, high, owner))
            shapes.append(_text(x + (j + 0.5) * wide, y + (i + 0.5) * high + 5, str(owner)))
    return shapes


def _equation(left: Sequence[str], middle: Sequence[str], right: Sequence[str], x: float, second: float) -> list[str]:
    return [*left, _text(x, 105, "&times;", weight="bold"), *middle, _text(second, 105, "=", weight="bold"), *right]


def _p2p() -> list[str]:
    band = _SIZE / 4
    shapes = [_text(100, 30, "A", weight="bold"), _text(270, 30, "H", weight="bold")]
    for i in range(4):
        shapes.append(_rect(40, 40 + i * band, _SIZE, band, i, 0.18))
        shapes.append(_rect(40 + i * band, 40 + i * band, band, band, i, 0.6))
        shapes.append(_text(28, 40 + (i + 0.5) * band + 5, str(i)))
        shapes.append(_rect(240, 40 + i * band, 60, band, i))
        shapes.append(_text(312, 40 + (i + 0.5) * band + 5, str(i), "start"))
    # Nonzeros outside the diagonal blocks: (row of the figure, column of the figure).
    for row, column in ((0, 9), (1, 10), (1, 19), (4, 2), (6, 21), (9, 5), (10, 14), (14, 8), (17, 3), (13, 22)):
        shapes.append(_rect(40 + column * 5, 40 + row * 5 + 1, 4, 4, row // 6, 0.95))
    for row in (9, 10, 19):
        shapes.append(_rect(240, 40 + row * 5, 60, 5, None))
        shapes.append(_arrow((238, 42.5 + row * 5), (200, 42.5 + row * 5), (164, 55)))
    return shapes


def _broadcast() -> list[str]:
    shapes = _equation(
        _matrix(30, 40, "A", 4, 1, lambda i, _: i),
        _matrix(190, 40, "H", 4, 1, lambda i, _: i, 60),
        _matrix(290, 40, "A H", 4, 1, lambda i, _: i, 60),
        170, 270,
    )  # fmt: skip
    shapes += [_rect(30 + _SIZE / 4, 40, _SIZE / 4, _SIZE), _arrow((188, 85), (154, 85))]
    return shapes


def _replicated() -> list[str]:
    shapes = _matrix(30, 40, "A", 2, 2, lambda i, j: 2 * i + j)
    shapes += [_text(170, 105, "&times;", weight="bold"), _text(395, 105, "=", weight="bold")]
    for copy in range(2):
        shapes += _matrix(200 + 100 * copy, 40, f"H, copy {copy}", 2, 1, lambda i, _, copy=copy: 2 * i + copy, 60)
        shapes += _matrix(425 + 110 * copy, 40, f"A H, copy {copy}", 2, 1, lambda i, _, copy=copy: 2 * i + copy, 60)
    return shapes


def _summa() -> list[str]:
    shapes = _equation(
        _matrix(30, 40, "A", 2, 2, lambda i, j: 2 * i + j),
        _matrix(190, 40, "H", 2, 2, lambda i, j: 2 * i + j),
        _matrix(350, 40, "A H", 2, 2, lambda i, j: 2 * i + j),
        170, 330,
    )  # fmt: skip
    shapes += [_arrow((60, 82), (118, 82)), _arrow((60, 142), (118, 142))]
    shapes += [_arrow((232, 58), (232, 130)), _arrow((292, 58), (292, 130))]
    return shapes


def _split3d() -> list[str]:
    shapes = _matrix(30, 40, "A, layer 0", 2, 2, lambda i, j: 2 * i + j, 60)
    shapes += _matrix(130, 40, "A, layer 1", 2, 2, lambda i, j: 4 + 2 * i + j, 60)
    shapes += [_text(210, 105, "&times;", weight="bold")]
    shapes += _matrix(230, 40, "H, layer 0", 2, 2, lambda i, j: 2 * i + j, 60)
    shapes += _matrix(330, 40, "H, layer 1", 2, 2, lambda i, j: 4 + 2 * i + j, 60)
    shapes += [_text(410, 105, "=", weight="bold")]
    shapes += _matrix(430, 40, "sum of both", 2, 2, lambda i, j: 2 * i + j, 60)
    return shapes


def _tensor3d() -> list[str]:
    def axes(x: float, down: str, across: str) -> list[str]:
        return [
            _text(x - 12, 105, down, "end"),
            _arrow((x - 8, 60), (x - 8, 145)),
            _text(x + _SIZE / 2, 195, across),
            _arrow((x + 20, 172), (x + 105, 172)),
        ]

    shapes = _matrix(40, 40, "A: planes z, x", 2, 2, lambda i, j: 2 * i + j)
    shapes += axes(40, "z", "x")
    shapes += _matrix(230, 40, "H: planes x, y", 2, 2, lambda i, j: 2 * i + j)
    shapes += axes(230, "x", "y")
    shapes += _matrix(420, 40, "W: planes y, x", 2, 2, lambda i, j: 2 * i + j)
    shapes += axes(420, "y", "x")
    shapes += [_text(188, 105, "&times;", weight="bold"), _text(378, 105, "&times;", weight="bold")]
    return shapes


def _pipeline() -> list[str]:
    def box(x: float, y: float, first: str, second: str, rank: int) -> list[str]:
        return [
            (
                f'<rect x="{x}" y="{y}" width="120" height="50" rx="6" fill="var(--rank-{rank})" fill-opacity=".35"'
                ' stroke="currentColor" stroke-opacity=".5"/>'
            ),
            _text(x + 60, y + 22, first, weight="bold"),
            _text(x + 60, y + 39, second),
        ]

    shapes = [
        *box(5, 75, "sources", "files, URLs", 5),
        *box(175, 75, "graph", "CSR row blocks", 0),
        *box(345, 15, "partition", "part of vertices", 0),
        *box(345, 135, "grid shards", "2D blocks", 0),
        *box(515, 15, "row shards", "one per rank", 0),
        *box(685, 75, "run", "model, metrics", 1),
    ]
    shapes += [_arrow((126, 100), (172, 100)), _arrow((296, 90), (342, 48)), _arrow((296, 110), (342, 152))]
    shapes += [_arrow((466, 40), (512, 40)), _arrow((636, 40), (682, 88)), _arrow((466, 160), (640, 160), (682, 112))]
    shapes += [
        _text(149, 92, "ingest"), _text(316, 52, "partition", "end"), _text(489, 32, "shard"),
        _text(312, 150, "shard", "end"), _text(668, 56, "train", "start"), _text(668, 152, "train", "start"),
    ]  # fmt: skip
    return shapes


_FIGURES: dict[str, tuple[Callable[[], list[str]], int, int, str]] = {
    "pipeline": (_pipeline, 810, 200, "From raw files to a trained model. Green: Dask; orange: MPI."),
    "p2p": (
        _p2p, 400, 170,
        ("<code>p2p</code> on 4 ranks. Filled blocks are the columns of a rank's own vertices, dots are other nonzeros."
        " Rank 0 receives three rows: two of rank 1 and one of rank 3."),
    ),
    "broadcast": (
        _broadcast, 380, 170,
        ("<code>broadcast</code> on 4 ranks, step 1. Rank 1 sends its rows to all ranks, and each multiplies the"
        " outlined columns with them."),
    ),
    "replicated": (
        _replicated, 620, 170,
        ("<code>replicated</code> on 2 &times; 2 ranks: two blocks in two copies. Copy 0 multiplies the left half of"
        " A, copy 1 the right half, and a reduce-scatter adds them: each keeps half of the rows."),
    ),
    "summa": (
        _summa, 500, 170,
        ("<code>summa</code> on a 2 &times; 2 grid. In every stage, blocks of A go along the rows of the grid,"
        " and blocks of H along its columns."),
    ),
    "split3d": (
        _split3d, 540, 170,
        ("<code>split3d</code> on a 2 &times; 2 &times; 2 grid. Each layer runs SUMMA on its share of the columns of A,"
        " and a reduce-scatter adds the layers."),
    ),
    "tensor3d": (
        _tensor3d, 560, 205,
        ("<code>tensor3d</code> on a 2 &times; 2 &times; 2 grid, first layer. The axes x, y and z split the"
        " rows and columns of A, H and W; ranks along the third axis divide a block further, or hold copies of it."),
    ),
}  # fmt: skip
