"""Every format returns the stored features, labels and splits, for any range of rows."""

from __future__ import annotations

import pickle  # noqa: TID251 - the format consists of pickles
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import torch

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.format import bundled_vertices, guess_format, open_edges, open_vertices
from gnnloom.pipeline.sources.planetoid import PlanetoidVertices
from gnnloom.pipeline.sources.reading import text_columns
from gnnloom.pipeline.sources.reading.files import open_file
from gnnloom.pipeline.sources.source import SeparableSource, VertexSource
from gnnloom.pipeline.sources.vertex_data.keyed_rows import KeyedText
from gnnloom.pipeline.sources.vertex_data.text_vertices import TextVertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError, NotFoundError
from support.covering import few_of

N = 57
RNG = np.random.default_rng(5)
FEATURE = RNG.standard_normal((N, 4)).astype(np.float32)
LABEL = RNG.integers(-1, 6, N)
SPLIT = RNG.integers(0, 4, N).astype(np.uint8)


def rows(source: VertexSource, array: str, start: int = 0, stop: int = N) -> Any:
    return np.concatenate(list(source.read_rows(array, start, stop)))


def write_array(folder: Path, array: str, kind: str) -> str:
    values: Any = {"feature": FEATURE, "label": LABEL, "split": SPLIT}[array]
    path = folder / f"{array}.{kind}"
    if kind == "npy":
        np.save(path, values)
    elif kind == "parquet":
        columns = values.T if values.ndim == 2 else [values]
        names = [f"f{number}" for number in range(len(columns))]
        pq.write_table(pa.table(dict(zip(names, columns, strict=True))), path, row_group_size=10)
    else:
        lines = "\n".join(",".join(repr(value) for value in np.atleast_1d(row).tolist()) for row in values)
        path.write_bytes(
            pa.compress(lines.encode(), codec="zstd", asbytes=True) if kind == "csv.zst" else lines.encode()
        )
    return str(path)


@pytest.mark.parametrize(
    ("feature", "label", "split"),
    few_of(["npy", "parquet", "csv", "csv.zst"], *[["npy", "parquet", "csv"]] * 2, together=2),
)
def test_arrays_in_different_formats_can_be_combined(tmp_path: Path, feature: str, label: str, split: str) -> None:
    kinds = {"feature": feature, "label": label, "split": split}
    source = open_vertices("files", (), {array: write_array(tmp_path, array, kind) for array, kind in kinds.items()})
    assert source.arrays == ("feature", "label", "split")
    assert (source.num_vertices(), source.num_columns("feature")) == (N, 4)
    assert source.random_access == ("csv.zst" not in kinds.values())
    for start, stop in ((0, N), (13, 41), (50, 51)):
        np.testing.assert_array_equal(rows(source, "feature", start, stop), FEATURE[start:stop])
        np.testing.assert_array_equal(rows(source, "label", start, stop), LABEL[start:stop])
        np.testing.assert_array_equal(rows(source, "split", start, stop), SPLIT[start:stop])


def test_a_split_of_ids_can_be_combined_with_tables(tmp_path: Path) -> None:
    ids: dict[str, Any] = {name: np.flatnonzero(code == SPLIT) for code, name in enumerate(NAMES, 1)}
    np.savez(tmp_path / "split.npz", **ids)
    files = {"label": write_array(tmp_path, "label", "csv"), "split": str(tmp_path / "split.npz")}
    np.testing.assert_array_equal(rows(open_vertices("files", (), files), "split"), SPLIT)


NAMES = ("train", "valid", "test")


def write_ogb_binary(folder: Path, save: Any) -> None:
    (folder / "raw").mkdir()
    (folder / "split" / "time").mkdir(parents=True)
    label = np.where(LABEL < 0, np.nan, LABEL).astype(np.float32)[:, None]
    edges = {"edge_index": RNG.integers(0, N, (2, 99)), "num_nodes_list": [N], "num_edges_list": [99]}
    save(folder / "raw" / "data.npz", node_feat=FEATURE.astype(np.float16), node_year=LABEL, **edges)
    save(folder / "raw" / "node-label.npz", node_label=label)
    for code, name in enumerate(NAMES, 1):
        (folder / "split" / "time" / f"{name}.csv").write_text("".join(f"{v}\n" for v in np.flatnonzero(code == SPLIT)))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_binary_ogb_gives_features_labels_and_split(tmp_path: Path, save: Any) -> None:
    write_ogb_binary(tmp_path, save)
    source = bundled_vertices(None, [str(tmp_path)])
    assert source is not None
    np.testing.assert_array_equal(rows(source, "feature"), FEATURE.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(rows(source, "label"), LABEL)
    np.testing.assert_array_equal(rows(source, "split"), SPLIT)


def test_binary_ogb_can_be_ingested(tmp_path: Path, catalog: Catalog) -> None:
    write_ogb_binary(tmp_path, np.savez_compressed)
    dataset, here = catalog.create("papers"), InProcessCluster()
    ingest_graph(dataset, open_edges("ogb-binary", [str(tmp_path)]), IngestOptions(), here)
    stored = ingest_vertices(dataset, open_vertices("ogb-binary", [str(tmp_path)]), here)
    np.testing.assert_array_equal(stored.label(0, N), LABEL)
    np.testing.assert_array_equal(stored.feature(0, N), FEATURE.astype(np.float16).astype(np.float32))


def masks() -> dict[str, Any]:
    names = {"train_mask": 1, "val_mask": 2, "test_mask": 3}
    return {name: torch.from_numpy(code == SPLIT) for name, code in names.items()}


@pytest.mark.parametrize("shape", [(N,), (N, 1)])
def test_tensors_give_features_labels_and_masks(tmp_path: Path, shape: tuple[int, ...]) -> None:
    label = torch.from_numpy(LABEL).reshape(shape)
    storage = torch.from_numpy(np.concatenate([np.zeros((3, 4), np.float32), FEATURE]))
    torch.save({"x": storage[3:], "y": label, "edge_index": torch.tensor([[0], [1]]), **masks()}, tmp_path / "d.pt")
    source = bundled_vertices(None, [str(tmp_path / "d.pt")])
    assert source is not None
    assert source.random_access
    for start, stop in ((0, N), (13, 41)):
        np.testing.assert_array_equal(rows(source, "feature", start, stop), FEATURE[start:stop])
        np.testing.assert_array_equal(rows(source, "label", start, stop), LABEL[start:stop])
        np.testing.assert_array_equal(rows(source, "split", start, stop), SPLIT[start:stop])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool])
def test_features_of_any_dtype_become_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    x = torch.from_numpy(np.abs(FEATURE) * 3).to(dtype)
    torch.save({"x": x, "edge_index": torch.tensor([[0], [1]])}, tmp_path / "d.pt")
    np.testing.assert_array_equal(rows(open_vertices("pyg", [str(tmp_path / "d.pt")]), "feature"), x.float().numpy())


def test_overlapping_and_mismatched_masks_are_named(tmp_path: Path) -> None:
    path = tmp_path / "d.pt"
    torch.save({**masks(), "val_mask": torch.ones(N, dtype=torch.bool)}, path)
    with pytest.raises(InputError, match=rf"val_mask, row {np.argmax(SPLIT == 1)}: the vertex is in another split"):
        rows(open_vertices("pyg", [str(path)]), "split")
    torch.save({"train_mask": torch.ones(N, 2)}, path)
    with pytest.raises(InputError, match="train_mask:"):
        open_vertices("pyg", [str(path)])
    torch.save({**masks(), "y": torch.zeros(N + 1)}, path)
    with pytest.raises(InputError, match=r"different numbers of rows: .*y: 58"):
        open_vertices("pyg", [str(path)])
    torch.save({"edge_index": torch.tensor([[0], [1]])}, path)
    assert bundled_vertices(None, [str(path)]) is None
    with pytest.raises(NotFoundError, match="no x, y or masks"):
        open_vertices("pyg", [str(path)])


def test_a_pyg_data_is_read_without_pyg(tmp_path: Path) -> None:
    data_class = pytest.importorskip("torch_geometric.data").Data
    edge_index = torch.from_numpy(RNG.integers(0, N, (2, 40)))
    weight = torch.rand(40)
    data = data_class(
        x=torch.from_numpy(FEATURE), y=torch.from_numpy(LABEL), edge_index=edge_index, edge_weight=weight, **masks()
    )
    torch.save(data, tmp_path / "data.pt")
    torch.save((data.to_dict(), None, data_class), tmp_path / "collated.pt")
    for name in ("data.pt", "collated.pt"):
        location = [str(tmp_path / name)]
        source, edges = open_vertices("pyg", location), open_edges("pyg", location, {"weights": True})
        np.testing.assert_array_equal(rows(source, "feature"), FEATURE)
        np.testing.assert_array_equal(rows(source, "split"), SPLIT)
        (chunk,) = (chunk for span in edges.ranges() for chunk in edges.read(span))
        np.testing.assert_array_equal(np.stack([chunk.source, chunk.target]), edge_index.numpy())
        np.testing.assert_array_equal(chunk.weight, weight.numpy())
        assert edges.num_vertices() == N


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_planetoid_assigns_test_rows_by_the_index(tmp_path: Path, protocol: int) -> None:
    """Known rows come first, test rows follow test.index, and the rows of all other vertices are zero."""
    known, total = 560, 580
    rng = np.random.default_rng(0)
    test_ids = rng.permutation(np.setdiff1d(np.arange(known, total), [565, 570]))
    feature = scipy.sparse.csr_matrix((rng.random((total, 9)) < 0.4).astype(np.float32))
    label = rng.integers(0, 7, total)
    hot = np.eye(7, dtype=np.int32)[label]
    parts: dict[str, Any] = {"x": feature[:30], "y": hot[:30], "allx": feature[:known], "ally": hot[:known]}
    parts |= {"tx": feature[test_ids], "ty": hot[test_ids], "graph": {0: [1], 1: [0]}}
    for name, part in parts.items():
        (tmp_path / f"ind.some.{name}").write_bytes(pickle.dumps(part, protocol))
    (tmp_path / "ind.some.test.index").write_text("".join(f"{number}\n" for number in test_ids))
    for location in (tmp_path, tmp_path / "ind.some", tmp_path / "ind.some.graph"):
        assert guess_format([str(location)]) == "planetoid"
        assert PlanetoidVertices.open(str(location)).num_vertices() == total
    source = PlanetoidVertices.open(str(tmp_path))
    expected, classes = feature.toarray(), label.copy()
    expected[[565, 570]], classes[[565, 570]] = 0, -1
    np.testing.assert_array_equal(rows(source, "feature", 0, total), expected)
    np.testing.assert_array_equal(rows(source, "feature", 557, 569), expected[557:569])
    np.testing.assert_array_equal(rows(source, "label", 0, total), classes)
    split = np.zeros(total, np.uint8)
    split[:30], split[30:530], split[test_ids] = 1, 2, 3
    np.testing.assert_array_equal(rows(source, "split", 0, total), split)


def python_2_array(code: str, values: np.ndarray) -> bytes:
    """An array in protocol 0 as Python 2 wrote it, with bytes as escaped text."""
    escaped = "".join(f"\\x{byte:02x}" for byte in values.tobytes())
    shape = "".join(f"L{size}L\n" for size in values.shape)
    return (
        f"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n({shape}tcnumpy\ndtype\n(S'{code}'\n"
        f"I0\nI1\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\nS'{escaped}'\ntb"
    ).encode()


def test_pickles_of_python_2_are_read(tmp_path: Path) -> None:
    """The published files contain a csr_matrix made by copy_reg and a defaultdict made by __builtin__.list."""
    matrix = scipy.sparse.csr_matrix((RNG.random((4, 6)) < 0.5).astype(np.float32) * 200)
    hot = np.eye(3, dtype=np.int32)[[0, 2, 1, 2]]

    def csr(rows: scipy.sparse.csr_matrix) -> bytes:
        parts = [f"S'_shape'\n(I{rows.shape[0]}\nI{rows.shape[1]}\nt".encode()]
        for name, code in (("data", "f4"), ("indices", "i4"), ("indptr", "i4")):
            parts.append(f"S'{name}'\n".encode() + python_2_array(code, getattr(rows, name)))
        head = b"ccopy_reg\n_reconstructor\n(cscipy.sparse.csr\ncsr_matrix\nc__builtin__\nobject\nNtR(d"
        return head + b"".join(part + b"s" for part in parts) + b"b."

    files = {name: csr(rows) for name, rows in (("x", matrix[:1]), ("allx", matrix[:3]), ("tx", matrix[3:]))}
    files |= {
        name: python_2_array("i4", rows) + b"." for name, rows in (("y", hot[:1]), ("ally", hot[:3]), ("ty", hot[3:]))
    }
    files["graph"] = b"ccollections\ndefaultdict\n(c__builtin__\nlist\ntRI0\n(lI3\nasI3\n(lI0\naI1\nas."
    files["test.index"] = b"3\n"
    for name, content in files.items():
        (tmp_path / f"ind.old.{name}").write_bytes(content)
    source, edges = PlanetoidVertices.open(str(tmp_path)), open_edges(None, [str(tmp_path)])
    np.testing.assert_array_equal(rows(source, "feature", 0, 4), matrix.toarray())
    np.testing.assert_array_equal(rows(source, "label", 0, 4), [0, 2, 1, 2])
    (chunk,) = (chunk for span in edges.ranges() for chunk in edges.read(span))
    assert list(zip(chunk.source, chunk.target, strict=True)) == [(0, 3), (3, 0), (3, 1)]


def test_the_error_for_several_planetoid_datasets_lists_them(tmp_path: Path) -> None:
    for name in ("cora", "citeseer"):
        (tmp_path / f"ind.{name}.graph").write_bytes(b"")
    with pytest.raises(InputError, match=r"several datasets \(citeseer, cora\); name one"):
        open_edges(None, [str(tmp_path)])
    with pytest.raises(NotFoundError, match=r"ind\.pubmed\.allx:"):
        open_edges(None, [str(tmp_path / "ind.pubmed")])


def test_an_ogb_folder_may_contain_only_edges(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for name, content in (("edge", "0,1\n"), ("num-node-list", "2\n"), ("num-edge-list", "1\n")):
        (tmp_path / "raw" / f"{name}.csv").write_text(content)
    assert bundled_vertices("ogb", [str(tmp_path)]) is None
    (tmp_path / "raw" / "node-label.csv").write_text("0\n1\n")
    source = bundled_vertices(None, [str(tmp_path)])
    assert source is not None
    assert source.arrays == ("label",)


@pytest.mark.parametrize(("end", "index_bytes"), few_of(["\n", ""], [1, 7, 64, 1 << 20], together=2))
def test_rows_of_text_are_read_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index_bytes: int, end: str
) -> None:
    monkeypatch.setattr(text_columns, "_INDEX_BYTES", index_bytes)
    path = tmp_path / "feature.csv"
    # Blank lines do not count as rows.
    path.write_text("\n\n".join(f"{row},{row * row}" for row in range(N)) + end)
    source = TextVertices.open(str(path), "feature")
    assert source.num_vertices() == N
    expected = np.stack([np.arange(N), np.arange(N) ** 2], 1).astype(np.float32)
    for start in range(0, N, 7):
        for stop in (start + 1, N):
            np.testing.assert_array_equal(rows(source, "feature", start, stop), expected[start:stop])


def test_an_error_in_a_later_range_of_text_names_its_line_and_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_columns, "_INDEX_BYTES", 16)
    path = tmp_path / "feature.csv"
    path.write_text("".join("x,1\n" if row == 40 else f"{row},1\n" for row in range(N)))
    source = TextVertices.open(str(path), "feature")
    assert len(rows(source, "feature", 41, N)) == N - 41
    with pytest.raises(InputError, match=r"line 41: .*row 40 of 2 columns"):
        rows(source, "feature", 30, N)


def test_tasks_share_the_features_though_the_split_is_read_as_a_whole(tmp_path: Path) -> None:
    ids: dict[str, Any] = {name: np.flatnonzero(code == SPLIT) for code, name in enumerate(NAMES, 1)}
    np.savez(tmp_path / "split.npz", **ids)
    np.savez_compressed(tmp_path / "label.npz", label=LABEL)
    files = {
        "feature": write_array(tmp_path, "feature", "npy"),
        "label": str(tmp_path / "label.npz"),
        "split": str(tmp_path / "split.npz"),
    }
    source = open_vertices("files", (), files)
    assert isinstance(source, SeparableSource)
    apart = {array: source.source_of(array) for array in source.arrays}
    shared = {array: one.random_access for array, one in apart.items() if isinstance(one, VertexSource)}
    assert shared == {"feature": True, "label": False, "split": False}
    assert source.source_of("feature").arrays == ("feature",)


def test_text_may_have_a_header_empty_cells_and_words(tmp_path: Path) -> None:
    texts = {
        "target": "price,size\n1.5,\n,2\n\n3,4,\n",
        "split": 'split\ntrain\n"VALID"\ntest\n',
    }
    for array, text in texts.items():
        (tmp_path / f"{array}.csv").write_text(text)
    source = open_vertices("files", (), {array: str(tmp_path / f"{array}.csv") for array in texts})
    assert source.num_vertices() == 3
    nan = np.nan
    np.testing.assert_array_equal(rows(source, "target", 0, 3), np.array([[1.5, nan], [nan, 2], [3, 4]], np.float32))
    assert rows(source, "split", 0, 3).tolist() == [1, 2, 3]
    assert rows(source, "split", 1, 2).tolist() == [2]
    packed = tmp_path / "target.csv.zst"
    packed.write_bytes(pa.compress(texts["target"].encode(), codec="zstd", asbytes=True))
    again = open_vertices("files", (), {"target": str(packed)})
    assert again.num_vertices() == 3
    np.testing.assert_array_equal(rows(again, "target", 1, 3), rows(source, "target", 1, 3))


@pytest.mark.parametrize(
    ("array", "text", "reason"),
    [
        ("feature", "a,b\n1,\n2,3\n", "line 2: found too few columns"),
        ("feature", "1,2\n,3\n", "line 2: expected a number, found an empty cell"),
        ("target", "1,2\n3\n", "line 2: found too few columns"),
        ("label", "0\ncat\n", r"line 2: expected a number \(row 1 of 1 column\); number the classes from 0"),
        ("split", "train\nhold-out\n", "line 2: expected a number"),
        ("split", "train\n7\n", "line 2: expected a split code"),
    ],
)
def test_cells_that_cannot_be_read_are_named(tmp_path: Path, array: str, text: str, reason: str) -> None:
    path = tmp_path / "cells.csv"
    path.write_text(text)
    source = open_vertices("files", (), {array: str(path)})
    with pytest.raises(InputError, match=reason):
        rows(source, array, 0, 2)


def test_a_class_that_could_be_a_header_is_one_only_if_no_later_line_has_it(tmp_path: Path) -> None:
    path = tmp_path / "label.csv"
    path.write_text("y\nn\ny\nn\n")
    source = TextVertices.open(str(path), "label")
    assert rows(source, "label", 0, 4).tolist() == [1, 0, 1, 0]
    path.write_text("y\nno\nyes\n")
    assert rows(TextVertices.open(str(path), "label"), "label", 0, 2).tolist() == [0, 1]
    path.write_text("a,y\nb,n\nc,y\n")
    keyed = KeyedText.open(open_file(str(path)), "label")
    assert [block.values[:, 0].tolist() for block in keyed.blocks(keyed.ranges()[0])] == [[1, 0, 1]]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("dog\ncat\n\ndog\n", [1, 0, 1]),
        ("Label\ndog\n-1\ncat", [1, -1, 0]),
        ('"dog"\r\n"cat"\r\n"dog"\r\n', [1, 0, 1]),
    ],
)
def test_names_of_classes_are_numbered_in_order(tmp_path: Path, text: str, labels: list[int]) -> None:
    path = tmp_path / "label.csv"
    path.write_bytes(text.encode())
    source = TextVertices.open(str(path), "label")
    assert source.class_names == ("cat", "dog")
    assert source.num_vertices() == 3
    assert rows(source, "label", 0, 3).tolist() == labels
    assert rows(source, "label", 1, 2).tolist() == labels[1:2]


@pytest.mark.parametrize("order", [(0, 1, 2, 0, 1, 2), (2, 1, 0, 2, 1, 0), (1, 2, 1, 2)])
def test_names_of_classes_may_have_several_words_in_any_line(tmp_path: Path, order: tuple[int, ...]) -> None:
    path, names = tmp_path / "label.txt", ("Machine Learning", "Machine Translation", "Vision")
    path.write_text("".join(f"{names[number]}\n" for number in order))
    source = TextVertices.open(str(path), "label")
    assert [source.class_names[code] for code in rows(source, "label", 0, len(order))] == [names[k] for k in order]
    # First words that do not repeat may be ids.
    path.write_text("Ann Lee\nBob Ray\nCy Poe\n")
    with pytest.raises(InputError, match="--by-id"):
        TextVertices.open(str(path), "label")


def test_words_in_the_first_two_lines_are_not_a_header(tmp_path: Path) -> None:
    path = tmp_path / "split.csv"
    path.write_text("dog\ncat\ndog\n")
    source = TextVertices.open(str(path), "split")
    assert source.num_vertices() == 3
    with pytest.raises(InputError, match=r"split\.csv, line 1:.*'dog'"):
        rows(source, "split", 0, 3)
