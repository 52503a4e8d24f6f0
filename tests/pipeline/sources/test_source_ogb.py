"""OGB folders are read as published, and errors name the file and line of every inconsistency."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.sources.ogb import OgbEdges
from gnnloom.pipeline.sources.reading import text_columns
from gnnloom.pipeline.sources.reading.files import open_files
from gnnloom.pipeline.sources.reading.text_columns import read_array, read_ids, read_table
from gnnloom.pipeline.sources.source import VertexSource
from gnnloom.pipeline.sources.vertex_data.ogb_vertices import OgbVertices
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS
from support.covering import examples

FILES = {
    "raw/edge.csv.gz": "0,1\n1,2\n3,0\n",
    "raw/num-node-list.csv.gz": "4\n",
    "raw/num-edge-list.csv.gz": "3\n",
    "raw/node-feat.csv.gz": "0.5,1\n-2e-1,0\n1,1\n0,0.25\n",
    "raw/node-label.csv.gz": "0\n2\n1\n0\n",
    "split/time/train.csv.gz": "0\n1\n",
    "split/time/valid.csv.gz": "2\n",
    "split/time/test.csv.gz": "3\n",
}


def write(folder: Path, **changed: str) -> str:
    """Write the small dataset above, with changed contents for some files, given by the last part of their names."""
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        stem = path.name.removesuffix(".csv.gz").replace("-", "_")
        path.write_bytes(gzip.compress(changed.get(stem, content).encode()))
    return str(folder)


def edges_of(folder: str) -> list[tuple[int, int]]:
    source = OgbEdges.open(folder)
    chunks = [chunk for span in source.ranges() for chunk in source.read(span)]
    return [pair for chunk in chunks for pair in zip(chunk.source.tolist(), chunk.target.tolist(), strict=True)]


def rows_of(source: OgbVertices, array: str) -> np.ndarray:
    return np.concatenate(list(source.read_rows(array, 0, source.num_vertices())))


def read_all(folder: str) -> None:
    edges_of(folder)
    source = OgbVertices.open(folder)
    for array in source.arrays:
        rows_of(source, array)


def test_a_small_dataset_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path)
    assert edges_of(folder) == [(0, 1), (1, 2), (3, 0)]
    assert OgbEdges.open(folder).num_vertices() == 4
    source = OgbVertices.open(folder)
    assert source.arrays == ("feature", "label", "split")
    assert (
        rows_of(source, "feature").tolist() == np.array([[0.5, 1], [-0.2, 0], [1, 1], [0, 0.25]], np.float32).tolist()
    )
    assert rows_of(source, "label").tolist() == [0, 2, 1, 0]
    assert rows_of(source, "split").tolist() == [1, 1, 2, 3]
    assert np.concatenate(list(source.read_rows("label", 1, 3))).tolist() == [2, 1]


def test_files_may_be_uncompressed_or_missing(tmp_path: Path) -> None:
    folder = write(tmp_path)
    unpack(tmp_path, "raw/edge", "raw/num-node-list")
    (tmp_path / "raw/node-feat.csv.gz").unlink()
    assert edges_of(folder) == [(0, 1), (1, 2), (3, 0)]
    assert OgbVertices.open(folder).arrays == ("label", "split")
    assert OgbVertices.open(folder).num_columns("feature") == 0


def unpack(folder: Path, *names: str) -> None:
    for name in names:
        packed = folder / f"{name}.csv.gz"
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()


def test_tasks_share_the_rows_of_files_that_are_not_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_columns, "_INDEX_BYTES", 5)
    folder = write(tmp_path)
    packed = OgbVertices.open(folder)
    expected = {array: rows_of(packed, array) for array in ("feature", "label")}
    unpack(tmp_path, "raw/node-feat", "raw/node-label")
    plain = OgbVertices.open(folder)
    sources = [plain.source_of(array) for array in plain.arrays]
    shared = {source.arrays[0]: isinstance(source, VertexSource) and source.random_access for source in sources}
    assert shared == {"feature": True, "label": True, "split": False}
    assert not packed.random_access
    for array, rows in expected.items():
        for start in range(4):
            for stop in range(start + 1, 5):
                found = np.concatenate(list(plain.read_rows(array, start, stop)))
                np.testing.assert_array_equal(found, rows[start:stop])


@pytest.mark.parametrize("features", ["1,1\n1,1\n1,1\n", "1,1\n" * 5])
def test_a_plain_file_with_another_number_of_rows_is_refused_before_it_is_read(tmp_path: Path, features: str) -> None:
    folder = write(tmp_path, node_feat=features)
    unpack(tmp_path, "raw/node-feat")
    with pytest.raises(InputError, match=r"node-feat\.csv: [35] rows, expected one for each of the 4"):
        OgbVertices.open(folder)


def test_labels_may_be_floats_with_gaps(tmp_path: Path) -> None:
    folder = write(tmp_path, node_label="3.0\nnan\nNaN\n-1\n")
    assert rows_of(OgbVertices.open(folder), "label").tolist() == [3, -1, -1, -1]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"edge": "0,1\n1,4\n3,0\n"}, r"edge\.csv\.gz, line 2: the vertex id is not below"),
        ({"edge": "0,1\n1,a\n3,0\n"}, r"edge\.csv\.gz, line 2: expected a vertex id"),
        ({"edge": "0,1\n1,2\n"}, r"edge\.csv\.gz: 2 edges, num-edge-list says 3"),
        ({"edge": ""}, r"edge\.csv\.gz: the file is empty"),
        ({"num_node_list": "4\n4\n"}, r"num-node-list\.csv\.gz: expected one number for one graph, found 2"),
        ({"num_edge_list": "x\n"}, r"num-edge-list\.csv\.gz, line 1: "),
        ({"node_feat": "1,1\n1,1\n1,1\n"}, r"node-feat\.csv\.gz: 3 rows, expected one for each of the 4"),
        ({"node_feat": "1,1\n1,1\n1,1\n1,1\n\n1,1\n"}, r"node-feat\.csv\.gz, line 6: more rows than the 4"),
        ({"node_feat": "1,1\n1,nan\n1,1\n1,1\n"}, r"node-feat\.csv\.gz, line 2: .*finite.*row 1"),
        ({"node_feat": "1,1\n1,1\n-inf,1\n1,1\n"}, r"node-feat\.csv\.gz, line 3: .*finite.*row 2"),
        ({"node_feat": "1,1\n1\n1,1\n1,1\n"}, r"node-feat\.csv\.gz, line 2: found too few columns"),
        ({"node_feat": "1,1\n1,1,1\n1,1\n1,1\n"}, r"node-feat\.csv\.gz, line 2: found too many columns"),
        ({"node_feat": "1,1\n1,\n1,1\n1,1\n"}, r"node-feat\.csv\.gz, line 2: found too few columns"),
        ({"node_feat": "1,1\n1,x\n1,1\n1,1\n"}, r"node-feat\.csv\.gz, line 2: expected a number"),
        ({"node_feat": ""}, r"node-feat\.csv\.gz: the file is empty"),
        ({"node_label": "0\n-2\n0\n0\n"}, r"node-label\.csv\.gz, line 2: expected a class"),
        ({"node_label": "0\n0\n2147483648\n0\n"}, r"node-label\.csv\.gz, line 3: expected a class"),
        ({"node_label": "0\n0\n0\n1.5\n"}, r"node-label\.csv\.gz, line 4: expected a class"),
        ({"node_label": "0\n0\n0\n"}, r"node-label\.csv\.gz: 3 rows"),
        ({"node_label": "0,1\n0,0\n1,3\n0,1\n"}, r"node-label\.csv\.gz, line 3: expected labels of 0 or 1"),
        ({"train": "0\n4\n"}, r"train\.csv\.gz, line 2: expected a vertex from 0 to 3, found 4: '4'"),
        ({"train": "0\n-1\n"}, r"train\.csv\.gz, line 2: .*negative"),
        ({"valid": "\n2\n1\n"}, r"valid\.csv\.gz, line 3: vertex 1 is already in the train split"),
    ],
)
def test_inconsistencies_are_named(tmp_path: Path, changed: dict[str, str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_all(write(tmp_path, **changed))


def test_one_of_several_splits_must_be_chosen(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (tmp_path / "split/other").mkdir()
    for name in ("train", "valid", "test"):
        (tmp_path / f"split/other/{name}.csv").write_text({"train": "3\n"}.get(name, ""))
    with pytest.raises(InputError, match=r"several splits \(other, time\)"):
        OgbVertices.open(folder)
    assert rows_of(OgbVertices.open(folder, split="other"), "split").tolist() == [0, 0, 0, 1]
    assert rows_of(OgbVertices.open(folder, split="time"), "split").tolist() == [1, 1, 2, 3]
    with pytest.raises(NotFoundError, match="split/none/train"):
        OgbVertices.open(folder, split="none")


def test_a_missing_folder_or_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no such folder"):
        OgbEdges.open(str(tmp_path / "none"))
    with pytest.raises(NotFoundError, match="raw/num-node-list"):
        OgbEdges.open(str(tmp_path))


@pytest.mark.parametrize("name", ["raw/edge", "raw/node-feat", "raw/node-label", "split/time/test"])
def test_a_truncated_file_is_an_error(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path)
    path = tmp_path / f"{name}.csv.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=f"{path.name}:"):
        read_all(folder)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
            st.floats(-1e30, 1e30).map(repr),
            st.integers(-(10**15), 10**15).map(str),
            st.decimals(-(10**6), 10**6, places=12).map(lambda value: f"{value:f}"),
            st.from_regex(r"[-+]?[0-9]{1,17}(\.[0-9]{0,12})?([eE][-+]?[0-3]?[0-9])?", fullmatch=True),
        ).filter(lambda text: abs(float(text)) < 3e38),
        min_size=1,
        max_size=20,
    ),
    st.integers(1, 50),
)
def test_numbers_equal_those_that_python_reads(tmp_path: Path, texts: list[str], block_bytes: int) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("\n".join(texts))
    blocks = list(read_table(open_files([str(path)])[0], 1, np.float32, block_bytes=block_bytes))
    found = np.concatenate([block.values[:, 0] for block in blocks])
    assert found.tobytes() == np.array([float(text) for text in texts]).astype(np.float32).tobytes()


def test_wide_tables_keep_their_rows(tmp_path: Path) -> None:
    table = np.random.default_rng(3).normal(size=(57, 31)).astype(np.float32)
    path = tmp_path / "table.csv"
    np.savetxt(path, table, delimiter=",", fmt="%.9g", newline="\r\n")
    blocks = list(read_table(open_files([str(path)])[0], 31, np.float32, block_bytes=100))
    assert len(blocks) > 5
    assert [block.first for block in blocks] == np.cumsum([0, *(len(block.values) for block in blocks)])[:-1].tolist()
    assert np.array_equal(np.concatenate([block.values for block in blocks]), table)


def test_columns_of_ids_and_labels_in_small_blocks(tmp_path: Path) -> None:
    path = tmp_path / "ids.csv"
    path.write_text("0\n\n9223372036854775807\r\n 12 \n7")
    ids = np.concatenate([block.values for block in read_ids(open_files([str(path)])[0], block_bytes=3)])
    assert ids.tolist() == [0, 2**63 - 1, 12, 7]
    path.write_text("0\n\n2147483646\n")
    blocks = read_array(open_files([str(path)])[0], VERTEX_ARRAYS["label"], 1)
    labels = np.concatenate([block.values for block in blocks])
    assert labels.tolist() == [0, 2147483646]


def test_cora_is_the_published_graph(shared_data: Path) -> None:
    folder = shared_data / "cora"
    assert len(edges_of(str(folder))) == 5278
    source = OgbVertices.open(str(folder))
    reference = np.loadtxt(folder / "raw/node-feat.csv.gz", delimiter=",", dtype=np.float32)
    assert np.array_equal(rows_of(source, "feature"), reference)
    assert np.bincount(rows_of(source, "label")).tolist() == [351, 217, 418, 818, 426, 298, 180]
    assert np.bincount(rows_of(source, "split")).tolist() == [1068, 140, 500, 1000]
