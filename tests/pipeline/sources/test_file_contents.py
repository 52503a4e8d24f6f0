"""The first bytes of a file decide how it is decoded and read, and name what gnnloom does not read."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.sources.format import guess_format, open_edges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Graph
from gnnloom.storage.errors import InputError
from support.covering import few_of

RING = [(number, (number + 1) % 7) for number in range(7)]
TEXT = "src,dst\n" + "".join(f"{source},{target}\n" for source, target in RING)


def ingest(folder: Path, path: Path, options: IngestOptions | None = None, **given: object) -> Graph:
    catalog = Catalog(folder / "catalog")
    dataset = catalog.create(f"g{len(list(catalog))}")
    chosen = options or IngestOptions(self_loops="keep", ids="compact")
    source = open_edges(None, [str(path)], given, undirected=chosen.undirected)
    return ingest_graph(dataset, source, chosen, InProcessCluster())


def edges_of(graph: Graph) -> set[tuple[int, int]]:
    rows, columns = graph.to_scipy().tocoo().coords
    return set(zip(columns.tolist(), rows.tolist(), strict=True))


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, TEXT)
    return file.getvalue()


CODED = {
    "gzip": gzip.compress(TEXT.encode()),
    "bzip2": bz2.compress(TEXT.encode()),
    "xz": lzma.compress(TEXT.encode()),
    "two xz streams": lzma.compress(TEXT[:20].encode()) + lzma.compress(TEXT[20:].encode()),
    "zstd": pa.compress(TEXT.encode(), codec="zstd", asbytes=True),
    "utf-16": TEXT.encode("utf-16"),
    "utf-16 big-endian": b"\xfe\xff" + TEXT.replace("\n", "\r\n").encode("utf-16-be"),
    "utf-16 of old Macs": TEXT.replace("\n", "\r").encode("utf-16"),
    "carriage returns": TEXT.replace("\n", "\r").encode(),
}


@pytest.mark.parametrize(("coding", "name"), few_of(CODED, ["e.csv", "E.TXT", "edges"], together=1))
def test_codings_are_recognized_by_the_first_bytes(tmp_path: Path, coding: str, name: str) -> None:
    (tmp_path / name).write_bytes(CODED[coding])
    assert edges_of(ingest(tmp_path, tmp_path / name)) == set(RING)


@pytest.mark.parametrize("name", ["e.csv.gz", "e.csv.bz2", "e.csv.xz", "e.csv.zst", "e.csv.zip"])
def test_damaged_files_of_each_coding_are_one_error(tmp_path: Path, name: str) -> None:
    whole = {".gz": CODED["gzip"], ".bz2": CODED["bzip2"], ".xz": CODED["xz"], ".zst": CODED["zstd"]}
    data = whole.get(Path(name).suffix, zipped("e.csv"))
    for damaged in (data[:-7], data[: len(data) // 2], TEXT.encode()):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(InputError, match=rf"{name}: truncated or damaged"):
            ingest(tmp_path, tmp_path / name)


def test_all_streams_of_an_xz_file_are_read_in_bounded_memory(tmp_path: Path) -> None:
    texts = ["".join(f"{number},{number + 1}\n" for number in range(first, 5 + first)) for first in (0, 5)]
    (tmp_path / "e.csv.xz").write_bytes(bytes(8).join(lzma.compress(text.encode()) for text in texts) + bytes(4))
    assert ingest(tmp_path, tmp_path / "e.csv.xz").nnz == 10
    wide = {"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 29}
    (tmp_path / "e.csv.xz").write_bytes(lzma.compress(texts[0].encode(), filters=[wide]))
    with pytest.raises(InputError, match=r"e\.csv\.xz.*[Mm]emory"):
        ingest(tmp_path, tmp_path / "e.csv.xz")


def test_a_zip_archive_of_one_file_is_read_and_one_of_several_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e.zip").write_bytes(zipped("folder/e.csv"))
    assert edges_of(ingest(tmp_path, tmp_path / "e.zip")) == set(RING)
    (tmp_path / "e.zip").write_bytes(zipped("a.csv", "b.csv"))
    with pytest.raises(InputError, match=r"e\.zip:.*a\.csv.*b\.csv"):
        ingest(tmp_path, tmp_path / "e.zip")


def write_foreign(folder: Path, kind: str, name: str) -> Path:
    path, graph = folder / name, nx.path_graph(4)
    if kind == "tar":
        with tarfile.open(path, "w:gz") as archive:
            archive.add(__file__, "e.csv")
    elif kind == "json lines":
        path.write_text('{"source": "a", "target": "b"}\n{"source": "b", "target": "c"}\n')
    elif kind == "json":
        write_links: Any = nx.node_link_data
        path.write_text(json.dumps(write_links(graph)))
    elif kind == "excel":
        path.write_bytes(zipped("[Content_Types].xml", "xl/workbook.xml"))
    elif kind == "feather":
        pd.DataFrame(RING, columns=["a", "b"]).to_feather(path)
    elif kind == "pickle":
        path.write_bytes(b"\x80\x04]\x94.")
    elif kind == "html":
        path.write_text("<!DOCTYPE html>\n<html><body>404</body></html>\n")
    elif kind == "rdf":
        path.write_text('# c\n<http://x/a> <http://x/knows> <http://x/b> .\n_:c <http://x/name> "Ann Lee"@en .\n')
    elif kind == "dot":
        path.write_text("digraph G {\n  a -> b;\n}\n")
    else:
        getattr(nx, f"write_{kind}")(graph, path)
    return path


@pytest.mark.parametrize(
    ("name", "kind", "remedy"),
    few_of(
        ["file.txt", "file.csv", "file"],
        [
            pytest.param("tar", "a tar archive.*`tar xf"),
            pytest.param("graphml", "GraphML.*read_graphml"),
            pytest.param("gexf", "GEXF.*read_gexf"),
            pytest.param("gml", "GML.*read_gml"),
            pytest.param("pajek", "Pajek.*read_pajek"),
            pytest.param("json lines", "JSON lines.*read_json"),
            pytest.param("json", "JSON,.*node_link_graph"),
            pytest.param("feather", "Feather.*read_feather"),
            pytest.param("graph6", "graph6.*read_graph6"),
            pytest.param("sparse6", "sparse6.*read_sparse6"),
            pytest.param("html", "an HTML page"),
            pytest.param("rdf", "RDF triples"),
            pytest.param("dot", "DOT.*read_dot"),
        ],
        together=1,
    ),
)
def test_formats_of_others_are_named_with_what_converts_them(tmp_path: Path, kind: str, remedy: str, name: str) -> None:
    path = write_foreign(tmp_path, kind, name)
    with pytest.raises(InputError, match=rf"{name}: {remedy}"):
        open_edges(None, [str(path)])


@pytest.mark.parametrize(("kind", "name"), [("excel", "t.xlsx"), ("pickle", "g.gpickle"), ("graph6", "g.g6")])
def test_formats_that_only_names_tell_are_named_too(tmp_path: Path, kind: str, name: str) -> None:
    with pytest.raises(InputError, match=rf"{name}: .* does not read"):
        open_edges(None, [str(write_foreign(tmp_path, kind, name))])


@pytest.mark.parametrize("name", ["m.MTX", "m.mtx.txt", "m", "m.csv"])
def test_matrix_market_is_recognized_under_any_name(tmp_path: Path, name: str) -> None:
    matrix = scipy.sparse.random_array((6, 6), density=0.4, rng=np.random.default_rng(1), format="coo")
    scipy.io.mmwrite(tmp_path / "given.mtx", matrix)
    text = (tmp_path / "given.mtx").read_text()
    (tmp_path / name).write_text(text)
    assert guess_format([str(tmp_path / name)]) == "mtx"
    found = ingest(tmp_path, tmp_path / name, IngestOptions(self_loops="keep"), weights=True).to_scipy().toarray()
    np.testing.assert_allclose(found, matrix.toarray(), rtol=1e-6)
    with pytest.raises(InputError, match="`--format mtx`"):
        open_edges("snap", [str(tmp_path / name)])


@pytest.mark.parametrize(
    ("banner", "field"),
    few_of(
        ["%MatrixMarket", "  %%matrixmarket", "%%%MatrixMarket"], ["real", "integer", "unsigned-integer"], together=1
    ),
)
def test_matrix_market_is_read_as_scipy_reads_it(tmp_path: Path, banner: str, field: str) -> None:
    (tmp_path / "m.mtx").write_text(
        f"{banner} matrix  coordinate {field} general\n % note\n\n 2 2 2\n1 2 3\n\n 2 1 4\n"
    )
    graph = ingest(tmp_path, tmp_path / "m.mtx", IngestOptions(self_loops="keep"), weights=True)
    assert graph.to_scipy().toarray().tolist() == [[0, 3], [4, 0]]


def test_konect_says_whether_edges_have_directions(tmp_path: Path) -> None:
    path = tmp_path / "out.web"
    path.write_text("% sym unweighted\n1 2\n2\t3\n")
    with pytest.raises(InputError, match=r"out\.web: .*`--undirected`"):
        ingest(tmp_path, path)
    assert ingest(tmp_path, path, IngestOptions(undirected=True, self_loops="keep")).artifact.facts["nnz"] == 4
    path.write_text("% asym positive\n1 2\n2 3\n")
    assert ingest(tmp_path, path).artifact.facts["nnz"] == 2
    path.write_text("% bip unweighted\n1 1\n1 2\n")
    with pytest.raises(InputError, match=r"out\.web: a bipartite graph .*`--relation"):
        ingest(tmp_path, path)


@pytest.mark.parametrize("text", ["4 4\n2 4\n1 3\n2 4\n1 3\n", "3 2\n2\n1 3\n2\n"])
def test_a_file_that_may_be_of_metis_is_asked_about(tmp_path: Path, text: str) -> None:
    (tmp_path / "e.txt").write_text(text)
    with pytest.raises(InputError, match=r"e\.txt: .*`--format metis`.*`--format snap`"):
        open_edges(None, [str(tmp_path / "e.txt")])
    assert open_edges("metis", [str(tmp_path / "e.txt")]).num_vertices() == int(text[0])


def test_a_first_line_that_counts_vertices_and_edges_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("5 3\n0 1\n1 2\n2 3\n")
    with pytest.raises(InputError, match=r"e\.txt: line 1 .*`--format snap --header`"):
        open_edges(None, [str(tmp_path / "e.txt")])
    # An edge whose second end is by chance the number of the others.
    (tmp_path / "e.txt").write_text("9 3\n0 1\n1 9\n2 3\n")
    assert edges_of(ingest(tmp_path, tmp_path / "e.txt", IngestOptions(self_loops="keep"))) >= {(9, 3), (0, 1)}


@pytest.mark.parametrize(
    ("name", "reason"),
    [("meta.yaml", "DGL"), ("TOY_A.txt", "TU"), ("toy-G.json", "GraphSAGE"), ("adj_full.npz", "GraphSAINT")],
)
def test_folders_of_others_are_named(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(InputError, match=reason):
        open_edges(None, [str(tmp_path)])


@pytest.mark.parametrize(
    ("text", "range_bytes"),
    few_of(["3 2\n2\n3\n\n", "4 2\n2\n\n2\n\n", "3 2 1\n2 5\n1 5 3 1\n2 2\n"], [2, 1 << 20], together=1),
)
def test_an_edge_in_one_line_of_metis_only_is_named(tmp_path: Path, text: str, range_bytes: int) -> None:
    (tmp_path / "e.graph").write_text(text)
    source = open_edges(None, [str(tmp_path / "e.graph")])
    object.__setattr__(source, "range_bytes", range_bytes)
    with pytest.raises(InputError, match=r"e\.graph:"):
        ingest_graph(Catalog(tmp_path / "c").create("g"), source, IngestOptions(), InProcessCluster())
