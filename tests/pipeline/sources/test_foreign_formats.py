"""Formats that gnnloom does not read are refused by their names, and no list of edges is mistaken for one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.orc as po
import pytest

from gnnloom.pipeline.sources.format import guess_format, open_edges
from gnnloom.storage.errors import InputError

#: Name and content of a file, and the words of its refusal.
FOREIGN: dict[str, tuple[str, str | bytes, str]] = {
    "OBJ": ("m.txt", "# by hand\nmtllib m.mtl\nv 1.0 1.0 -1.0\nv 0 1 0\nv 1 0 0\nf 1 2 3\n", "an OBJ mesh"),
    "OBJ of whole numbers": ("m.obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n", "an OBJ mesh"),
    "PLY": ("m.ply", "ply\nformat ascii 1.0\nelement vertex 3\nend_header\n0 0 0\n", "a PLY mesh"),
    "STL": ("m.txt", "solid cube\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\n", "an STL mesh"),
    "OFF": ("m.txt", "OFF\n4 2 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 1 2\n3 1 2 3\n", "an OFF mesh"),
    "VTK": ("m.txt", "# vtk DataFile Version 3.0\nx\nASCII\nDATASET POLYDATA\n", "VTK"),
    "Gmsh": ("m.txt", "$MeshFormat\n2.2 0 8\n$EndMeshFormat\n", "Gmsh"),
    "MEDIT": ("m.mesh", "MeshVersionFormatted 1\nDimension 3\n", "MEDIT"),
    "GFA": ("a.txt", "S\t1\tACCTT\nS\t2\tTCAAGG\nL\t1\t+\t2\t-\t4M\n", "GFA.*awk '\\$1 == \"L\" {print \\$2, \\$4}'"),
    "GFA with a header": ("a.gfa", "H\tVN:Z:1.0\nS\t1\tACCTT\nL\t1\t+\t2\t-\t4M\n", "GFA"),
    "BED": ("peaks.txt", "chr1\t100\t200\nchr1\t300\t400\nchr2\t100\t200\n", "BED"),
    "BED with a track": ("a.bed", "track name=x\nchr1\t100\t200\n", "BED"),
    "BED without chr": ("a.bed", "1\t100\t200\n1\t300\t400\n", "BED.*`--format snap`"),
    "wiggle": ("a.wig", "fixedStep chrom=chr3 start=1 step=100\n11\n22\n", "BED"),
    "FASTA": ("a.txt", ">seq1 human\nACGTACGT\n>seq2\nGGGT\n", "FASTA"),
    "FASTQ": ("a.txt", "@r1 x\nACGT\n+\nIIII\n", "FASTQ"),
    "SAM": ("a.txt", "@HD\tVN:1.6\n@SQ\tSN:ref\tLN:45\n", "SAM"),
    "PAF": ("a.paf", "q1\t100\t0\t100\t+\tt1\t200\t0\t100\t90\t100\t60\n", "SAM"),
    "VCF": ("a.vcf", "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\n20\t14370\trs1\n", "VCF"),
    "GFF": ("a.gff3", "##gff-version 3\nctg\t.\tgene\t1\t9\t.\t+\t.\tID=g\n", "GFF"),
    "Newick": ("a.txt", "((A:0.1,B:0.2):0.3,C:0.4);\n", "Newick"),
    "NEXUS": ("a.nex", "#NEXUS\nBEGIN TREES;\nTREE t = (A,B);\nEND;\n", "NEXUS"),
    "MOL": ("a.txt", "x\n  RDKit\n\n  3  2  0  0  0  0  0  0  0  0999 V2000\n    0.0    0.0    0.0 C   0\n", "MOL"),
    "MOL2": ("a.txt", "@<TRIPOS>MOLECULE\nbenzene\n3 2\n", "MOL2"),
    "SMILES": ("a.smi", "CCO ethanol\nc1ccccc1 benzene\n", "SMILES"),
    "PDB": ("a.txt", "ATOM      1  N   THR A   1      17.047  14.099   3.625  1.00 13.79\n", "PDB"),
    "XYZ": ("a.txt", "3\nwater\nO 0.0 0.0 0.1\nH 0.0 0.7 -0.4\nH 0.0 -0.7 -0.4\n", "XYZ"),
    "gSpan": ("a.txt", "t # 0\nv 0 2\nv 1 2\ne 0 1 2\n", "gSpan"),
    "Cypher": ("a.txt", "// people\nCREATE (a)-[:KNOWS]->(b)\nCREATE (b)-[:KNOWS]->(c)\n", "Cypher"),
    "MERGE": ("a.cypher", "MERGE (a)-[:KNOWS]->(b);\n", "Cypher"),
    "MATCH": ("a.txt", "MATCH (a:P {id: 1}), (b:P {id: 2}) CREATE (a)-[:KNOWS]->(b);\n", "Cypher"),
    "an export of APOC": ("a.txt", ":begin\nCREATE CONSTRAINT FOR (n:X) REQUIRE (n.id) IS UNIQUE;\n", "Cypher"),
    "Gremlin": ("a.txt", "g.addV('person').property(id, 1)\ng.addE('knows').from(V(1)).to(V(2))\n", "Gremlin"),
    "SPARQL": ("a.rq", "PREFIX ex: <http://e/>\nSELECT ?a ?b WHERE { ?a ex:p ?b }\n", "SPARQL"),
    "Turtle": ("a.txt", "PREFIX ex: <http://e/>\nex:a ex:b ex:c .\n", "RDF"),
    "Turtle without a prefix": ("a.txt", "ex:a ex:knows ex:b .\nex:b ex:knows ex:c .\n", "RDF"),
    "TriG": ("a.txt", "GRAPH <http://g> {\n<a> <b> <c> .\n}\n", "RDF"),
    "HDT": ("a.hdt", b"$HDT\x01<http://purl.org/HDT/hdt#HDTv1>\0\0", "HDT"),
    "Pajek with lists": ("a.net", "*Arcslist\n1 2 3\n", "Pajek"),
    "KML": ("a.txt", "<kml>\n<Document>\n<Placemark/>\n", "XML"),
    "SVG": ("a.txt", '<svg>\n<line x1="0" y1="0"/>\n</svg>\n', "XML"),
    "a table of HTML": ("a.xls", "<table border=1>\n<tr><td>a</td></tr>\n</table>\n", "HTML.*read_html"),
    "GeoJSON": ("a.geojson", '{"type": "FeatureCollection", "features": []}', "JSON"),
    "LaTeX": ("a.txt", "a & b \\\\\nb & c \\\\\n", "LaTeX"),
    "a document of LaTeX": ("a.txt", "\\begin{tabular}{ll}\na & b \\\\\n\\end{tabular}\n", "LaTeX"),
    "Tulip": ("a.tlp", '(tlp "2.3"\n(nodes 0..2)\n(edge 0 0 1)\n)\n', "Tulip"),
    "Mermaid": ("a.txt", "graph TD\n  A-->B\n  B-->C\n", "Mermaid"),
    "YAML": ("a.yaml", "nodes:\n  - a\nedges:\n  - [a, b]\n", "YAML"),
    "ARFF": ("a.txt", "@relation edges\n@attribute source numeric\n@data\n1,2\n", "ARFF"),
    "BibTeX": ("a.txt", "@article{a1,\n  title={X}\n}\n", "BibTeX"),
    "RIS": ("a.txt", "TY  - JOUR\nAU  - Smith\nER  - \n", "RIS"),
    "an email": ("a.txt", "From: ann@x\nTo: bo@x\nSubject: hi\n\nhello\n", "email"),
    "a mailbox": ("a.mbox", "From ann@x Mon Jan 1\nFrom: ann@x\nTo: bo@x\n\nhello\n", "email"),
    "a calendar": ("a.txt", "BEGIN:VCALENDAR\nVERSION:2.0\nEND:VCALENDAR\n", "calendar"),
    "GEDCOM": ("a.txt", "0 HEAD\n1 SOUR x\n0 @I1@ INDI\n1 NAME Ann\n", "GEDCOM"),
    "CNF": ("a.txt", "c x\np cnf 3 2\n1 -3 0\n", "CNF"),
    "TSPLIB": ("a.txt", "NAME: x\nTYPE: TSP\nDIMENSION: 3\n", "TSPLIB"),
    "NetCDF": ("a.nc", b"CDF\x01\0\0\0\0", "NetCDF"),
    "SPSS": ("a.sav", b"$FL2@(#) IBM SPSS STATISTICS" + bytes(80), "SPSS.*read_spss"),
    "an old file of Stata": ("a.dta", b"\x73\x02\x01\0" + bytes(80), "Stata.*read_stata"),
    "SAS": ("a.txt", "HEADER RECORD*******LIBRARY HEADER RECORD!!!!!!!0000  SAS     SAS\n", "SAS.*read_sas"),
    "R": ("a.rds", "A\n3\n262915\n197888\n5\nUTF-8\n531\n2\n", "a file of R"),
    "SYLK": ("a.txt", 'ID;PWXL;N;E\nC;Y1;X1;K"a"\n', "SYLK"),
    "PDF": ("a.txt", "%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\n", "a document"),
    "PostScript": ("a.txt", "%!PS-Adobe-3.0\n0 0 moveto\n1 1 lineto\n", "a document"),
    "a program": ("a.py", "import networkx as nx\nG = nx.Graph()\n", "a program"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_format_that_is_not_read_is_refused_by_its_name(tmp_path: Path, case: str) -> None:
    name, content, says = FOREIGN[case]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=rf"{name}: .*{says}"):
        open_edges(None, [str(tmp_path / name)])


def test_a_name_that_misleads_is_overruled_by_the_format(tmp_path: Path) -> None:
    (tmp_path / "garden.bed").write_text("1 2\n2 3\n")
    with pytest.raises(InputError, match="`--format snap`"):
        open_edges(None, [str(tmp_path / "garden.bed")])
    edges = open_edges("snap", [str(tmp_path / "garden.bed")])
    assert sum(len(chunk.source) for span in edges.ranges() for chunk in edges.read(span)) == 2


def test_orc_is_recognized_by_its_first_bytes(tmp_path: Path) -> None:
    po.write_table(pa.table({"source": [1, 2], "target": [2, 3]}), tmp_path / "part-0")
    with pytest.raises(InputError, match="part-0: ORC"):
        open_edges(None, [str(tmp_path / "part-0")])


@pytest.mark.parametrize("name", ["zarr.json", ".zgroup", ".zarray"])
def test_a_folder_of_zarr_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / name).write_text("{}")
    with pytest.raises(InputError, match="g: a Zarr store"):
        open_edges(None, [str(tmp_path / "g")])


#: First lines of edges between words that begin other formats.
EDGES = (
    "graph theory\ntheory algebra", "solid liquid\nliquid gas", "create make\nmake build", "match game\ngame set",
    "v f\nf g", "v 1\nv 2\nf 1", "S L\nL M", "ORC ELF\nELF MAN", "CDF PDF\nPDF PMF", "off on\non idle", "OFF 1\nON 2",
    "select where\nwhere join", "chr1\tchr2\nchr2\tchr3", "ex:a\tex:b\nex:b\tex:c", "name id\nid name", "t 0\nv 0",
    "From there\nthere here", "PREFIX suffix\nsuffix root", "ply board\nboard wood", "o 1 2\ns 2 3",
    "(a) (b)\n(b) (c)", "<a> <b>\n<b> <c>", "# note\nTO FROM\nFROM VIA", "HEAD tail\ntail HEAD", "0 1\n0 HEADS",
    "# CREATE (a)\n1 2\n2 3", "3 4\nO H\nH O", "0 1 2.5 3.5\n1 2 3.5 4.5", "Date: now\nnow Date:",
)  # fmt: skip


@pytest.mark.parametrize("text", EDGES)
def test_edges_between_words_that_begin_other_formats_are_edges(tmp_path: Path, text: str) -> None:
    (tmp_path / "e.txt").write_text(f"{text}\n")
    assert guess_format([str(tmp_path / "e.txt")]) == "snap"
