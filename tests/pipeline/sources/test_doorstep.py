"""Files as data portals have them: the right graph, or one refusal, and never a graph that nobody meant."""

from __future__ import annotations

import gzip
import json
import shlex
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from gnnloom.pipeline.sources.binary.parquet_table import ParquetTable
from gnnloom.pipeline.sources.reading.files import open_file
from gnnloom.storage import Catalog
from gnnloom.storage.errors import GnnloomError
from gnnloom.workflows.cli.main import cli
from support.ogb_folders import write_ogb_binary_folder


@dataclass(frozen=True)
class Case:
    """Files, and the edges that they have.

    Attributes:
        files: contents by name; the first file comes first in the command.
        edges: the edges, as ``SOURCE>TARGET`` or ``SOURCE>TARGET=WEIGHT``, with commas between them.
    """

    files: dict[str, str]
    edges: str


@dataclass(frozen=True)
class Refused:
    """Files that are refused.

    Attributes:
        says: words of the message.
        words: options that do not help.
    """

    files: dict[str, str | bytes]
    says: tuple[str, ...]
    words: str = "--ids compact --extra-columns"


def call(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--catalog", str(folder / "catalog"), *words])


def written(folder: Path, files: dict[str, str] | dict[str, str | bytes]) -> list[str]:
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return [str(folder / name) for name in files]


def edges_of(folder: Path) -> dict[str, float]:
    graph = Catalog(folder / "catalog").dataset("g").graph()
    matrix = graph.to_scipy().tocoo()
    names = [str(name) for name in (graph.original_name() if graph.has_names else graph.original_id())]
    return {f"{names[j]}>{names[i]}": float(value) for i, j, value in zip(*matrix.coords, matrix.data, strict=True)}


READ = {
    "edges like names of columns": Case({"e.txt": "node1 node2\nnode2 node3\n"}, "node1>node2, node2>node3"),
    "no vertex twice": Case({"e.csv": "user1,user2\nuser3,user4\n"}, "user1>user2, user3>user4"),
    "letters as numbers": Case({"e.csv": "userA,userB\nuserC,userA\n"}, "userA>userB, userC>userA"),
    "words for ends, with numbers": Case({"e.txt": "source1 target1\nsource2 target1\n"},
                                         "source1>target1, source2>target1"),
    "names of columns with numbers": Case({"e.tsv": "gene1\tgene2\nTP53\tMDM2\nMDM2\tAKT1\n"}, "TP53>MDM2, MDM2>AKT1"),
    "tabs and blanks": Case({"out.k": "% asym\n6 2 4\t1289\n6 5 2\t1290\n"}, "6>2=4, 6>5=2"),
    "tabs or blanks": Case({"e.txt": "1\t2\n2 3\n3\t1\n"}, "1>2, 2>3, 3>1"),
    "semicolons between names of several words": Case(
        {"e.txt": "New York;Boston\nBoston;Salt Lake City\n"}, "New York>Boston, Boston>Salt Lake City"),
    "a tab for Excel": Case({"e.csv": "sep=\t\nsource\ttarget\n1\t2\n"}, "1>2"),
    "a column 0 of pandas": Case({"e.csv": "source,target,0\n1,2,0.5\n1,3,0.25\n"}, "1>2=0.5, 1>3=0.25"),
    "balances before and after": Case(
        {"t.csv": "nameOrig,newbalanceOrig,nameDest,newbalanceDest,amount\na,1.5,b,0.5,9\nb,2.5,c,0.5,8\n"},
        "a>b=9, b>c=8"),
    "seconds since 1970 in the third column": Case({"a.txt": "9 8 1217567877\n1 3 1217573801\n"},
                                                   "9>8, 1>3"),
    "Hive": Case({"e.txt": "ann\x01bo\nbo\x01cy\n"}, "ann>bo, bo>cy"),
    "two bars": Case({"e.txt": "ann||bo\nbo||cy\n"}, "ann>bo, bo>cy"),
    "all ids begin with a number sign": Case({"e.csv": "source,target\n#1,#2\n#2,#3\n"}, "#1>#2, #2>#3"),
    "rows of two numbers that count nothing": Case({"e.txt": "  1  2\n  2  3\n 10 11\n"}, "1>2, 2>3, 10>11"),
    "originators and beneficiaries": Case(
        {"t.csv": "tran_id,orig_acct,bene_acct,tx_type,base_amt\n1,10,20,CASH,200.5\n2,20,30,CASH,0.5\n"},
        "10>20=200.5, 20>30=0.5"),
    "places of pickup and dropoff": Case(
        {"t.csv": "VendorID,tpep_pickup_datetime,tpep_dropoff_datetime,PULocationID,DOLocationID\n"
                  "1,2020-01-01 00:28:15,2020-01-01 00:33:03,238,239\n1,2020-01-01 00:35:39,2020-01-01 00:43,239,8\n"},
        "238>239, 239>8"),
    "STRING": Case({"l.txt": "protein1 protein2 fusion combined_score\n9.A 9.B 0 173\n9.B 9.C 1 154\n"},
                   "9.A>9.B=173, 9.B>9.C=154"),
    "a header in the first part": Case({"a.csv": "source,target\nann,bo\n", "b.csv": "bo,cy\n"}, "ann>bo, bo>cy"),
    "a header in the last part": Case({"a.csv": "1,2\n", "b.csv": "source,target\n2,3\n"}, "1>2, 2>3"),
    "a header and weights in the first part": Case({"a.csv": "source,target,weight\nann,bo,1\n", "b.csv": "bo,cy,2\n"},
                                                   "ann>bo=1, bo>cy=2"),
    "times before the ends": Case({"t.dat": "20 1558 1567\n20 1560 1570\n40 1567 1574\n60 1567 1558\n"},
                                  "1558>1567, 1560>1570, 1567>1574, 1567>1558"),
    "seconds of a log before the ends": Case({"t.txt": "1353303380 1148 1644\n1353303400 656 682\n"},
                                             "1148>1644, 656>682"),
    "names with marks of the ends": Case({"t.csv": "year,ccode1,ccode2,trade\n1920,2,20,5\n1921,20,70,7\n"},
                                         "2>20, 20>70"),
    "letters for the ends": Case({"t.csv": "t,i,j,k,v\n2018,4,8,5701,10.5\n2018,8,12,5701,1.5\n"}, "4>8, 8>12"),
    "codes of origin and destination": Case(
        {"t.csv": "year,iso3_o,iso3_d,distw\n2000,FRA,DEU,500.5\n2000,DEU,ITA,9.5\n2001,ITA,FRA,700.5\n"},
        "FRA>DEU, DEU>ITA, ITA>FRA"),
    "columns that are numbered": Case({"t.csv": "c0,c1,c2,c3\n1,2,9,8\n2,3,7,9\n3,1,8,7\n"}, "1>2, 2>3, 3>1"),
    "numbers of rows and two marked ids": Case(
        {"q.csv": '"id","qid1","qid2","question1"\n"0","1","2","How, so?"\n"1","3","4","Why?"\n"2","2","3","When?"\n'},
        "1>2, 3>4, 2>3"),
    "a kind of words behind three numbers": Case(
        {"as.txt": "1|11537|0|bgp\n1|21616|-1|bgp\n21616|1|-1|mlp\n"}, "1>11537, 1>21616, 21616>1"),
    "ratings of users, in the order of the users": Case(
        {"r.csv": "userId,movieId,rating\n" + "".join(f"{1 + k // 2},{1000 + k},{2 + k % 4}\n" for k in range(8))},
        ", ".join(f"{1 + k // 2}>{1000 + k}={2 + k % 4}" for k in range(8))),
    "ratings without a header": Case(
        {"r.csv": "".join(f"{1 + k // 2},{1000 + k},{2 + k % 4}\n" for k in range(8))},
        ", ".join(f"{1 + k // 2}>{1000 + k}={2 + k % 4}" for k in range(8))),
    "ids of three kinds": Case(
        {"t.csv": "order_id,product_id,shelf_id\n1,2,3\n1,3,2\n4,2,3\n5,3,2\n"}, "1>2, 1>3, 4>2, 5>3"),
    "figures that are called by numbers, after ids": Case(
        {"r.csv": "user_id,item_id,q1,q2\n1,7,3,4\n1,8,4,4\n2,7,5,3\n"}, "1>7, 1>8, 2>7"),
    "ids of users in the range of seconds": Case(
        {"t.csv": "user,follower,weight\n1500000977,20003799,4\n1500000977,20005000,2\n1500002931,20003799,5\n"},
        "1500000977>20003799=4, 1500000977>20005000=2, 1500002931>20003799=5"),
    "comments of one word between edges": Case(
        {"e.txt": "# part1\n10 20\n20 30\n# part2\n10 30\n"}, "10>20, 20>30, 10>30"),
    "comments that number the parts": Case(
        {"e.txt": "# 2001\n10 20\n20 30\n# 2002\n10 30\n"}, "10>20, 20>30, 10>30"),
    "comments that name the source of the edges below": Case(
        {"e.txt": "# 1\n1 2\n1 3\n# 2\n2 3\n"}, "1>2, 1>3, 2>3"),
    "ids and names of both ends, after an airline's": Case(
        {"t.csv": "airline,airline_id,source,source_id,dest,dest_id,stops\n2B,410,AER,2965,KZN,2990,0\n"
                  "2B,410,KZN,2990,AER,2965,0\nAA,24,JFK,3797,LAX,3484,0\n"},
        "2965>2990, 2990>2965, 3797>3484"),
    "departures and arrivals": Case(
        {"t.csv": "carrier,departure,arrival\nX,AER,KZN\nX,KZN,AER\nY,JFK,LAX\n"}, "AER>KZN, KZN>AER, JFK>LAX"),
    "debit and credit accounts": Case(
        {"t.csv": "Date,Debit Account,Credit Account,Amount\n2020-01-01,DE1,DE2,5.5\n2020-01-02,DE2,DE3,7.5\n"},
        "DE1>DE2=5.5, DE2>DE3=7.5"),
    "addresses of inputs and outputs": Case(
        {"t.csv": "tx_hash,input_address,output_address,value\na1,1A,1B,0.5\na2,1B,1C,0.25\n"},
        "1A>1B=0.5, 1B>1C=0.25"),
    "numbers of two telephones": Case(
        {"t.csv": "call_id,a_number,b_number,duration\n1,111,222,30\n2,222,333,40\n"}, "111>222, 222>333"),
    "an id and its qualified name in common": Case(
        {"e.csv": "node_id,node\n1,2\n2,3\n3,1\n"}, "1>2, 2>3, 3>1"),
    "times of day as vertices": Case({"e.csv": "from,to\n08:00,09:00\n09:00,10:00\n"}, "08:00>09:00, 09:00>10:00"),
    "a vertex that is called Total": Case(
        {"e.csv": "source,target\nShell,BP\nBP,Eni\nTotal,Shell\n"}, "Shell>BP, BP>Eni, Total>Shell"),
    "arrows that all lead to the target": Case({"e.csv": "source,target,direction\nann,bo,->\nbo,cy,->\n"},
                                               "ann>bo, bo>cy"),
    "marks behind capital letters": Case(
        {"s.tsv": "ENTITYA\tTYPEA\tIDA\tENTITYB\tTYPEB\tIDB\nJAK\tprotein\tO6\tSTAT\tprotein\tP4\n"
                  "STAT\tprotein\tP4\tBCL\tprotein\tP1\n"}, "JAK>STAT, STAT>BCL"),
    "genes and their names in a comment": Case(
        {"b.tab3.txt": "#BioGRID Interaction ID\tEntrez Gene Interactor A\tEntrez Gene Interactor B\tBioGRID ID"
                       " Interactor A\tBioGRID ID Interactor B\tOrganism ID Interactor A\tOrganism ID Interactor B"
                       "\tScore\n103\t6416\t2318\t112\t108\t9606\t9606\t-\n"
                       "117\t84665\t88\t124\t106\t9606\t9606\t-\n"}, "6416>2318, 84665>88"),
    "days as numbers of a spreadsheet": Case({"e.csv": "source,target,date\na,b,44197.5\nb,c,44198.25\n"}, "a>b, b>c"),
    "durations between times and ends": Case(
        {"f.csv": "ts,te,td,sa,da\n2018-06-21 00:00:01,2018-06-21 00:00:02,1.5,10.0.0.1,10.0.0.2\n"
                  "2018-06-21 00:00:02,2018-06-21 00:00:03,2.0,10.0.0.2,10.0.0.3\n"},
        "10.0.0.1>10.0.0.2, 10.0.0.2>10.0.0.3"),
    "two edges with weights and seconds": Case({"e.txt": "1 2 1 1289241911\n2 3 1 1289241941\n"}, "1>2=1, 2>3=1"),
    **{
        f"a column {name}": Case({"e.csv": f"source,target,kind,{name}\n1,2,9,5\n2,3,8,7\n"}, "1>2=5, 2>3=7")
        for name in ("score", "similarity", "strength", "n", "Count", "freq", "combined_score", "trip_count")
    },
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_the_command_of_a_look_stores_the_edges(tmp_path: Path, case: str) -> None:
    want = READ[case]
    looked = call(tmp_path, "look", *written(tmp_path, want.files), "--json")
    assert looked.exit_code == 0, looked.exception
    words = shlex.split(json.loads(looked.stdout)["command"].replace("NAME", "g", 1))[1:]
    stored = call(tmp_path, *words, "--workers", "0", "--self-loops", "keep")
    assert stored.exit_code == 0, stored.exception
    found, pairs = edges_of(tmp_path), [edge.partition("=") for edge in want.edges.split(", ")]
    assert set(found) == {edge for edge, _, _ in pairs}
    assert all(found[edge] == float(weight) for edge, _, weight in pairs if weight)


_LZ4 = b"\x04\x22\x4d\x18\x64\x40\xa7" + bytes(20)
REFUSED = {
    "lines of comments of GO": Refused({"g.gaf": "!gaf-version: 2.2\n!by hand\na b\nb c\n"},
                                       ("line 1", "`--comment '!'`")),
    "a matrix of two vertices": Refused({"m.txt": "0 1\n1 0\n"}, ("m.txt", "`--columns 1,2`")),
    "names that differ in case": Refused({"e.csv": "Source,source,Target,target\n1,5,2,6\n"},
                                         ("Source and source", "`--columns Source,Target`")),
    "ends that differ in case": Refused({"e.csv": "source,Source,weight\n1,5,1\n2,6,3\n"},
                                        ("source and Source", "`--columns source,Source`")),
    "arcs without a line of the problem": Refused({"x.clq": "e 1 2\ne 1 4\n"}, ("line 1", "'e'", "`--columns 2,3`")),
    "a relation in the middle": Refused({"g.sif": "nodeA pp nodeB\nnodeC pp nodeA\nnodeB pd nodeC nodeD\n"},
                                        ("line 1",)),
    "records of SNAP": Refused({"r.txt": "SRC:ann\nTGT:Bo Lee\nVOT:1\n\nSRC:cy\nTGT:Bo Lee\nVOT:1\n"},
                               ("line 1", "records"), "--ids names --extra-columns"),
    "a blank and a comma": Refused({"e.txt": "1 2, 0.5\n2 3, 1\n"}, ("line 1", "one separator")),
    "a matrix as MATLAB prints it": Refused({"m.txt": "(1,2)  1\n(2,3)  1\n"}, ("line 1", "parentheses")),
    "a matrix as R prints it": Refused({"m.txt": "     [,1] [,2]\n[1,]    1    2\n[2,]    2    3\n"}, ("brackets",),
                                       "--ids names --header --extra-columns"),
    "MatrixMarket without its first line": Refused({"m.mtx": "1 2\n2 3\n"}, ("line 1", "`--format snap`"), ""),
    "coordinates of DIMACS": Refused({"x.co": "c by hand\np aux sp co 1\nv 1 -7 4\n"}, ("DIMACS", ".gr")),
    "a hypergraph": Refused({"x.hgr": "2 3\n1 2\n1 2 3\n"}, ("hypergraph",)),
    "labels of Network Repository": Refused({"x.node_labels": "1,2\n2,1\n"}, ("gnnloom features",)),
    "Pajek after a comment": Refused({"x.txt": "% by hand\n*Vertices 2\n1 a\n2 b\n*Edgeslist\n1 2\n"}, ("Pajek",)),
    "DOT after comments": Refused({"x.gv": "/* by\nhand */\n// c\ndigraph G\n{\n a -> b;\n}\n"}, ("DOT",)),
    "XML without a declaration": Refused({"x.txt": '<graph label="x" directed="1">\n<node id="1"/>\n'}, ("XML",)),
    "GraphML with entities": Refused(
        {"x.txt": '<!DOCTYPE g [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]>\n<graphml><node id="&b;"/></graphml>'},
        ("GraphML",)),
    "LZ4": Refused({"e.csv": _LZ4}, ("compression", "lz4")),
    "uncompress": Refused({"e.txt": b"\x1f\x9d\x901 2\n2 3\n"}, ("compression",)),
    "zeros and ones below names": Refused({"m.csv": "a,b\n0,1\n1,0\n"}, ("m.csv", "`--columns 1,2`")),
    "a matrix that is not square": Refused({"m.csv": "0,1,0,1\n1,0,0,1\n"}, ("m.csv", "0 or 1")),
    "three vertices without loops": Refused({"m.csv": "0,2,0\n0,0,5\n7,0,0\n"}, ("m.csv", "matrix")),
    "a title above the names of columns": Refused({"e.csv": "My export\nsource,target\na,b\nb,c\n"},
                                                  ("line 1", "title")),
    "a word for the direction": Refused({"e.edge": "undirected\n1 2\n2 3\n3 1\n"}, ("`--header --undirected`",)),
    "a count above triples": Refused({"e.txt": "3\n0 1 2\n1 2 0\n2 0 1\n"}, ("line 1", "`--header`")),
    "a preamble above the names of columns": Refused({"e.csv": "Exported by Ann,2020\nsource,target\nann,bo\nbo,cy\n"},
                                                     ("line 2", "header")),
    "a second header in other letters": Refused({"e.csv": "source,target\nann,bo\nSource,Target\nbo,cy\n"},
                                                ("line 3", "header")),
    "Network Workbench": Refused({"e.nwb": "*Nodes 2\nid*int label*string\n1 a\n2 b\n*DirectedEdges\n1 2\n"},
                                 ("Network Workbench",)),
    "LGL": Refused({"e.lgl": "# ann\nbo 1.0\ncy 0.5\n# bo\ncy 2.0\n"}, ("line 2", "LGL")),
    "LGL without weights": Refused({"e.txt": "# 1\n2\n3\n# 2\n3\n"}, ("line 2", "LGL")),
    "LGL of numbers": Refused({"e.txt": "# 0\n1 1\n2 1\n# 1\n2 1\n3 1\n# 2\n3 1\n"},
                              ("line 2", "LGL", "`--comment '#'`")),
    "LGL with weights": Refused({"e.txt": "# 1\n2 1.0\n3 0.5\n# 2\n3 2.0\n"}, ("line 2", "LGL")),
    "seconds or ids before two columns": Refused(
        {"t.txt": "1353303380 1148 1644\n1353303400 656 682\n"}, ("`--columns 2,3`", "`--columns 1,2`"),
        "--ids compact"),
    "dates before the ends": Refused(
        {"e.csv": "start_day,end_day,node,peer_node\n2020-01-01,2020-01-02,1,2\n2020-01-02,2020-01-03,2,3\n"},
        ("times", "`--columns node,peer_node`"), "--ids compact"),
    "words of Excel for errors": Refused({"e.csv": "source,target\nann,bo\n#REF!,cy\ncy,ann\n"}, ("line 3", "missing")),
    "digits of another script": Refused({"e.csv": "source,target\n\uff11,\uff12\n\uff12,\uff13\n"},
                                        ("line 2", "digits of another script")),
    "two Unicode forms of a name": Refused({"e.csv": "source,target\ncafe\u0301,bo\nbo,caf\u00e9\n"},
                                           ("line 3", "NFC", "`--ids names`")),
    "a name with single quotes and without": Refused({"e.csv": "source,target\n'ann',bo\nbo,cy\ncy,ann\n"},
                                                     ("differ only in quotes",)),
    "an address in two cases": Refused(
        {"e.csv": "source,target\n0xDEADBEEF00000001,0xdeadbeef00000002\n0xdeadbeef00000002,0xdeadbeef00000001\n"},
        ("line 3", "case of digits")),
    "text after a quoted name": Refused({"e.csv": 'source,target\n"5\\" disk","bo"\n"bo","cy"\n"cy","bo"\n'},
                                        ("line 2", "separator")),
    "an ideographic comma": Refused({"e.csv": "ann\uff0cbo\nbo\uff0ccy\n"}, ("line 1", "U+FF0C")),
    "a sign at the ends of lines": Refused({"e.txt": "1 -> 2;\n2 -> 3;\n"}, ("line 1", "remove this sign")),
    "a comment of percent signs below names": Refused({"e.txt": "ann bo\nbo cy\n% end\n"},
                                                      ("line 3", "`--comment %`")),
    "a line of counts below edges": Refused({"e.txt": "ann bo\nbo cy\ncy ann\n3 rows selected.\n"},
                                            ("line 4", "remove the line"), "--ids compact"),
    "features of libsvm": Refused({"e.svm": "1 3:1\n0 2:1\n"}, ("line 1", "libsvm")),
    "a call torn at its comma": Refused({"e.txt": "add('p').p('id',1)\nadd('p').p('id',2)\n"},
                                        ("line 1", "brackets")),
    "relations between numbers": Refused(
        {"e.tsv": "00260881\t_hypernym\t00260622\n01332730\t_form\t03122748\n06066555\t_form\t00645415\n"},
        ("line 1", "`--format triples`")),
    "counts above ids from 1": Refused({"e.txt": "5 4\n1 2\n2 3\n3 4\n4 5\n"}, ("line 1", "`--format snap --header`")),
    "counts above many ids": Refused(
        {"e.txt": "40001 40000\n" + "".join(f"{k} {k + 1}\n" for k in range(40000))}, ("line 1", "40,000 edges")),
    "the size of a matrix": Refused({"e.txt": "4 4 3\n2 1\n3 1\n4 3\n"}, ("line 1", "4 x 4")),
    "formulas that keep zeros": Refused({"e.csv": 'source,target\n="001",="002"\n="002",="003"\n'},
                                        ("line 2", "Excel")),
    "a sign that is seldom a separator": Refused({"e.txt": "a^b\nb^c\n"}, ("line 1", "`--delimiter '^'`")),
    "the number of a line before its edge": Refused(
        {"e.csv": "1,5,6\n2,6,7\n3,7,8\n"}, ("`--columns 2,3`", "`--columns 1,2,3`"), "--ids compact"),
    "many columns without names": Refused(
        {"routes.dat": "2B,410,AER,2965,KZN,2990,,0,CR2\n2B,410,KZN,2990,AER,2965,,0,CR2\n"},
        ("9 columns", "`--columns 3,5`"), "--ids compact"),
    "times of day": Refused(
        {"stop_times.txt": "trip_id,arrival_time,stop_id\nT1,08:00:00,A\nT1,08:05:00,B\nT2,09:00:00,A\n"},
        ("arrival_time", "`--columns trip_id,stop_id`"), "--ids compact"),
    "dates": Refused({"g.txt": "0\t2010-10-19T23:55:27Z\t30.2\t22847\n0\t2010-10-18T22:17:43Z\t30.5\t4203\n"},
                     ("column 2", "`--columns 1,4`"), "--ids compact"),
    "two columns of one name": Refused(
        {"t.csv": "Time,From Bank,Account,To Bank,Account,Paid\n1,010,8E,010,8D,3.5\n2,011,8F,001,8E,0.5\n"},
        ("From Bank,To Bank", "`--columns 3,5 --header`"), "--ids compact"),
    "thousands of columns": Refused({"w.csv": "a," * 20_000 + "a\n" + "1," * 20_000 + "1\n"},
                                    ("w.csv", "`gnnloom features NAME --feature", "`--format snap`")),
    "weights in dollars": Refused({"e.csv": "source,target,amount\na,b,$1.5\nb,c,$2.5\n"}, ("amount", "'$1.5'"),
                                  "--ids compact"),
    "the properties of WebGraph": Refused({"g.properties": "#BVGraph properties\nnodes=3\narcs=4\n"}, ("WebGraph",)),
    "a dump of PostgreSQL": Refused({"d.sql": "SET statement_timeout = 0;\nCOPY e (s, t) FROM stdin;\n1\t2\n"},
                                    ("SQL",)),
    "a complex matrix": Refused(
        {"m.mtx": "%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 2 1 1\n"}, ("complex", "mmwrite"), ""),
    "a decomposition of PACE": Refused({"g.gr": "p tw 3 2\n1 2\n2 3\n"}, ("line 1", "`--format snap`"), ""),
    "several tables": Refused(
        {"users.csv": "user_id,age\n1,20\n2,30\n", "items.csv": "item_id,price\n7,2.5\n",
         "ratings.csv": "user_id,item_id,rating\n1,7,5\n2,7,4\n"}, ("gnnloom look", "ratings.csv`"), ""),
    "several tables with names": Refused(
        {"users.csv": "user,age\nann,20\nbo,30\n", "items.csv": "item,price\nx,2.5\ny,1.5\n",
         "ratings.csv": "user,item,rating\nann,x,5\nbo,y,4\n"}, ("gnnloom look", "ratings.csv`"), "--ids compact"),
    "a sum below names": Refused({"e.csv": "source,target,amount\nann,bo,5\nbo,cy,10\nTotal,2,15\n"},
                                 ("line 4", "'Total'", "`--columns 1,2`")),
    "a sum in the second column": Refused({"e.csv": "source,target,amount\nann,bo,5\nbo,cy,10\n,Grand total:,15\n"},
                                          ("line 4", "'Grand total:'")),
    "a sum in German": Refused({"e.csv": "von;nach;betrag\nann;bo;5\nbo;cy;10\nGesamtergebnis;;15\n"},
                               ("line 4", "'Gesamtergebnis'")),
    "a sum below many names": Refused(
        {"e.csv": "source,target\n" + "".join(f"person-{k},person-{k + 1}\n" for k in range(9000)) + "Sum,9000\n"},
        ("line 9,002", "'Sum'")),
    "arrows in both directions": Refused({"e.txt": "ann -> bo\ncy <- dee\n"}, ("line 1", "'->' and '<-'")),
    "arrows behind a word": Refused({"e.txt": "Edge 1 => 2\nEdge 2 => 3\n"}, ("line 1", "`--columns 2,4`")),
    "nothing between the ids": Refused({"e.tsv": "ann\t\tbo\nbo\t\tcy\n"}, ("line 1", "empty", "`--columns 1,3`")),
    "a column of directions": Refused({"e.csv": "source,target,direction\nann,bo,->\nbo,cy,<-\n"},
                                      ("column direction", "directed and reversed")),
    "edges against their direction": Refused({"e.csv": "source,target,direction\nann,bo,in\nbo,cy,in\n"},
                                             ("column direction", "reversed")),
    "only some directed edges": Refused({"e.csv": "source,target,is_directed\n1,2,True\n2,3,False\n"},
                                        ("column is_directed", "directed and undirected")),
    "several receivers": Refused({"e.csv": "sender,recipient\nann@x.org,bo@x.org\nbo@x.org,\"cy@x.org, di@x.org\"\n"},
                                 ("line 3", "several names")),
    "several names": Refused({"e.csv": "source,target\nann,bo\nbo,cy;ann\n"}, ("line 3", "'cy;ann'", "`--ids names`")),
    "addresses of hardware in two cases": Refused(
        {"e.txt": "00:1B:44:11:3A:B7 00:1B:44:11:3A:B8\n00:1b:44:11:3a:b8 00:1B:44:11:3A:B9\n"}, ("line 1", "case")),
    "short hexadecimal ids in two cases": Refused({"e.csv": "source,target\n0xAB,0xCD\n0xcd,0xEF\n"},
                                                  ("line 2", "case")),
    "names that begin as comments do": Refused({"e.csv": "#ann,#bo\n#bo,#cy\n"}, ("e.csv", "`--comment none`")),
    "numbers of columns": Refused({"e.csv": "0,1,2\n5,6,7\n6,7,8\n"}, ("line 1", "`--header`", "`--no-header`"),
                                  "--weights --ids compact"),
    "degrees": Refused({"d.csv": "node,degree\n0,3\n1,2\n2,2\n3,1\n"}, ("--feature", "`--columns node,degree`"), ""),
    "communities": Refused({"c.txt": "node\tcommunity\n0\t3\n1\t2\n2\t2\n3\t1\n"},
                           ("--label", "`--columns node,community`"), ""),
    "a note below names": Refused({"e.csv": "source,target\nann,bo\nbo,cy\n\nSource: World Bank, 2020\n"},
                                  ("line 5", "'Source: World Bank'")),
    "ids and names of two things": Refused(
        {"t.csv": "user,user_id,item,item_id,rating\nann,1,book,7,5\nbo,2,cup,8,4\nann,1,cup,8,3\n"},
        ("user and user_id", "`--columns user_id,item_id`"), "--ids compact"),
    "ids and titles of two things": Refused(
        {"t.csv": "author_id,author_name,paper_id,paper_title\n1,Ann,7,X\n2,Bo,8,Y\n1,Ann,8,Y\n"},
        ("author_id and author_name", "`--columns author_id,paper_id`"), "--ids compact"),
    "ids and names of two things, with weights": Refused(
        {"t.csv": "user,user_id,item,item_id,rating\nann,1,book,7,5\nbo,2,cup,8,4\n"},
        ("`--columns user_id,item_id,VALUE`",), "--ids compact --weights"),
    "ids and names of three things": Refused(
        {"t.csv": "carrier,carrier_id,guest,guest_id,host,host_id\nX,1,A,10,B,11\nX,1,B,11,A,10\nY,2,C,12,A,10\n"},
        ("carrier and carrier_id", "`--columns guest_id,host_id`"), "--ids compact"),
    "users behind their tweets": Refused(
        {"t.csv": "tweet_id,user_id,retweeted_user_id\n9,1,2\n8,2,3\n7,3,1\n"},
        ("`--columns user_id,retweeted_user_id`", "`--columns tweet_id,user_id`"), "--ids compact"),
    "names behind those of transactions": Refused(
        {"t.csv": "txid,who,whom\na1,ann,bo\na1,bo,cy\na2,cy,bo\n"},
        ("`--columns who,whom`", "`--columns txid,who`"), "--ids compact --header"),
    "dates as people write them": Refused(
        {"t.csv": "Buchungstag;Auftraggeber;Empfaenger\n01.01.2020;Ann;Bo\n02.01.2020;Bo;Cy\n03.01.2020;Cy;Ann\n"},
        ("Buchungstag has times", "`--columns Auftraggeber,Empfaenger`"), "--ids compact --header"),
    "an edge index": Refused({"e.csv": "0,1,2,3\n1,2,3,4\n"}, ("line 1", "edge_index", "`--columns 1,2`")),
    "rows of values in SQL": Refused({"e.txt": "(1,2),\n(2,3),\n(3,1);\n"}, ("line 1", "brackets")),
    "a sign that begins all lines": Refused({"e.txt": "* a b\n* b c\n"}, ("line 1", "`--columns 2,3`")),
    "a header that only the first part has": Refused(
        {"a.csv": "customer,supplier\nann,bo\nbo,cy\n", "b.csv": "bo,cy\ncy,ann\n"}, ("b.csv", "join"),
        "--ids compact --header"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_list_of_edges_is_refused_with_the_way_out(tmp_path: Path, case: str) -> None:
    want = REFUSED[case]
    files = written(tmp_path, want.files)
    result = call(tmp_path, "ingest", "g", *files, *want.words.split(), "--workers", "0")
    assert isinstance(result.exception, GnnloomError), (result.output, result.exception)
    assert [word for word in want.says if word not in str(result.exception)] == []


@pytest.mark.parametrize("case", REFUSED)
def test_a_look_at_what_is_refused_shows_no_command_that_is_refused_at_once(tmp_path: Path, case: str) -> None:
    looked = call(tmp_path, "look", *written(tmp_path, REFUSED[case].files), "--json")
    if looked.exit_code:
        assert isinstance(looked.exception, GnnloomError), looked.exception
        return
    command = json.loads(looked.stdout)["command"]
    if command.startswith("gnnloom ingest"):
        stored = call(tmp_path, *shlex.split(command.replace("NAME", "g", 1))[1:], "--workers", "0")
        assert stored.exit_code == 0, (command, stored.exception)


def test_lists_below_comments_are_edges_if_the_sign_of_comments_is_stated(tmp_path: Path) -> None:
    (name,) = written(tmp_path, {"e.txt": "# 0\n1 1\n2 1\n# 1\n2 1\n3 1\n"})
    stored = call(tmp_path, "ingest", "g", name, "--comment", "#", "--workers", "0", "--self-loops", "keep")
    assert stored.exit_code == 0, stored.exception
    assert set(edges_of(tmp_path)) == {"1>1", "2>1", "3>1"}


def test_features_that_are_not_text_are_named(tmp_path: Path) -> None:
    (edges,) = written(tmp_path, {"e.txt": "0 1\n1 2\n"})
    assert call(tmp_path, "ingest", "g", edges, "--workers", "0").exit_code == 0
    files: dict[str, str | bytes] = {"x.pt": b"PK\x03\x04\0\0 \0\n1\n2\n"}
    (name,) = written(tmp_path, files)
    result = call(tmp_path, "features", "g", "--feature", name, "--workers", "0")
    assert isinstance(result.exception, GnnloomError), result.exception
    assert "x.pt, line 1: a zero byte" in str(result.exception)


def test_ratings_without_names_of_columns_may_be_between_two_types(tmp_path: Path) -> None:
    ratings = "196\t242\t3\t881250949\n186\t302\t3\t891717742\n242\t377\t1\t878887116\n"
    tables: dict[str, str | bytes] = {
        "u.data": ratings,
        "r.dat": ratings.replace("\t", "::"),
        "r.csv": "1,31,2.5\n2,1,4\n",
    }
    others = {
        name: json.loads(call(tmp_path, "look", location, "--json").stdout)["others"]
        for name, location in zip(tables, written(tmp_path, tables), strict=True)
    }
    (each,) = others["u.data"]
    stored = call(tmp_path, *shlex.split(each["command"].replace("NAME", "g", 1))[1:], "--workers", "0", "--json")
    assert stored.exit_code == 0, stored.exception
    assert json.loads(stored.stdout)["vertices"] == 6
    words = ["ingest", "h", str(tmp_path / "u.data"), "--weights", "--extra-columns", "--ids", "compact"]
    noted = call(tmp_path, *words, "--workers", "0", "--json")
    assert each["command"].replace("NAME", "h", 1) in json.loads(noted.stdout)["notes"][-1]
    assert [len(found) for found in others.values()] == [1, 1, 1]
    (trust,) = written(tmp_path, {"t.csv": "6,2,-4,1289241911\n6,5,2,1289241941\n"})
    assert "others" not in json.loads(call(tmp_path, "look", trust, "--json").stdout)


def test_a_table_of_vertices_with_thousands_of_columns_is_read_in_a_moment(tmp_path: Path) -> None:
    names = ["id", *("_".join(["source", "of", "the", "target"] * 8) + str(k) for k in range(9000))]
    rows = [[f"v{k}", *["0.5"] * 9000] for k in range(40)]
    (name,) = written(tmp_path, {"w.csv": "".join(f"{','.join(row)}\n" for row in [names, *rows])})
    call(tmp_path, "look", name)
    before = time.process_time()
    looked = call(tmp_path, "look", name, "--json")
    assert time.process_time() - before < 5
    assert json.loads(looked.stdout)["command"].startswith("gnnloom features NAME")


def test_weights_that_are_not_read_are_named(tmp_path: Path) -> None:
    (name,) = written(tmp_path, {"m.mtx": "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 5\n"})
    looked = call(tmp_path, "look", name)
    assert "`--weights`" in looked.stdout
    assert "not read" not in call(tmp_path, "look", name, "--weights").stdout
    np.savez(tmp_path / "e.npz", row=[0, 1], col=[1, 2], data=[0.5, 2.0])
    found = json.loads(call(tmp_path, "look", str(tmp_path / "e.npz"), "--json").stdout)
    assert found["command"].endswith("--weights")
    assert "others" not in found


def test_the_command_that_a_refusal_of_several_tables_names_leads_to_a_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, REFUSED["several tables"].files)
    refused = str(call(tmp_path, "ingest", "g", *REFUSED["several tables"].files, "--workers", "0").exception)
    words = shlex.split(refused[refused.index("`gnnloom look ") + 1 :].partition("`")[0])
    command = json.loads(call(tmp_path, *words[1:], "--json").stdout)["command"]
    stored = call(tmp_path, *shlex.split(command.replace("NAME", "g", 1))[1:], "--workers", "0")
    assert stored.exit_code == 0, stored.exception


@pytest.mark.parametrize(
    "text",
    [
        "-- \n" * 900 + "x",
        "/* a */\n" * 400 + "x",
        "# a\n" * 900 + "graph",
        "<" + "a" * 4000,
        "a1_B" * 9000 + " x\n" * 9,
        "a," * 1_000_000 + "\n" + "1," * 1_000_000 + "\n",
    ],
)
def test_no_beginning_of_a_file_takes_long_to_recognize(tmp_path: Path, text: str) -> None:
    (name,) = written(tmp_path, {"e.txt": text})
    before = time.process_time()
    result = call(tmp_path, "look", name)
    assert result.exit_code == 0 or isinstance(result.exception, GnnloomError)
    assert time.process_time() - before < 20


def test_points_that_may_separate_thousands_are_named(tmp_path: Path) -> None:
    tables: dict[str, str | bytes] = {"d.csv": "von;nach;x\n1;2;1.500\n2;3;12.750\n", "c.csv": "von;nach;x\n1;2;1.5\n"}
    doubtful, clear = written(tmp_path, tables)
    assert "'1.500' is read as 1.5" in call(tmp_path, "look", doubtful, "--weights").stdout
    assert "is read as" not in call(tmp_path, "look", clear, "--weights").stdout


def test_features_whose_points_may_separate_thousands_are_named(tmp_path: Path) -> None:
    tables: dict[str, str | bytes] = {
        "v.csv": "id;sales\nann;1.500\nbo;12.750\n",
        "w.csv": "id;sales\nann;1.5\nbo;2.5\n",
    }
    doubtful, clear = written(tmp_path, tables)
    assert "'1.500' is read as 1.5" in call(tmp_path, "look", doubtful).stdout
    assert "is read as" not in call(tmp_path, "look", clear).stdout


def test_a_look_at_stops_shows_vertices(tmp_path: Path) -> None:
    stops = "stop_id,stop_name,stop_lat,stop_lon\nS1,Main St,52.5,13.4\nS2,High St,52.6,13.5\nP1,Low St,52.7,13.6\n"
    tables: dict[str, str | bytes] = {"stops.txt": stops}
    (name,) = written(tmp_path, tables)
    assert json.loads(call(tmp_path, "look", name, "--json").stdout)["command"].startswith("gnnloom features NAME")


def test_parquet_without_names_of_ends_is_asked_about(tmp_path: Path) -> None:
    columns = {"t": [20, 20, 40, 60], "person": [8, 6, 8, 7], "other": [7, 8, 6, 8]}
    pq.write_table(pa.table(columns), tmp_path / "e.parquet")
    result = call(tmp_path, "ingest", "g", str(tmp_path / "e.parquet"), "--workers", "0")
    assert isinstance(result.exception, GnnloomError)
    assert "`--columns person,other` or `--columns t,person`" in str(result.exception)


def test_files_of_numbers_and_files_of_names_are_noted(tmp_path: Path) -> None:
    files = written(tmp_path, {"e.csv": "0,1\n1,2\n", "names.csv": "0,ann\n1,bo\n2,cy\n"})
    words = ["ingest", "g", *files, "--ids", "compact", "--workers", "0", "--json"]
    (note,) = (each for each in json.loads(call(tmp_path, *words).stdout)["notes"] if "are names in" in each)
    assert [word for word in ("names.csv ('ann' in line 1)", "numbers in", "e.csv") if word not in note] == []


def test_parquet_without_columns_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({}), tmp_path / "e.parquet")
    for command in (["look"], ["ingest", "g"]):
        assert isinstance(call(tmp_path, *command, str(tmp_path / "e.parquet")).exception, GnnloomError)


def test_a_sum_is_found_at_the_end_of_files_that_are_read_from_their_start(tmp_path: Path) -> None:
    names = [f"person-{k}" for k in range(9001)]
    edges = [*pairwise(names), ("Total", "9000")]
    text = "source,target\n" + "".join(f"{source},{target}\n" for source, target in edges)
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(text.encode()))
    sources, targets = zip(*edges, strict=True)
    pq.write_table(pa.table({"s": sources, "t": targets}), tmp_path / "e.parquet", row_group_size=4000)
    for name, where, remedy, how in (
        ("e.csv.gz", "line 9,002", "--columns 1,2", ["--ids", "compact"]),
        ("e.parquet", "column s, row 9,000", "--ids names", []),
    ):
        words = ["ingest", name.partition(".")[2], str(tmp_path / name), "--workers", "0"]
        # Names of columns do not say that each row is an edge.
        words += ["--columns", "source,target"] if "csv" in name else []
        refused = str(call(tmp_path, *words, "--ids", "compact").exception)
        assert all(word in refused for word in (where, "'Total'", f"`{remedy}`"))
        assert call(tmp_path, *words[:5], *remedy.split(), *how).exit_code == 0


def test_vertex_data_that_come_along_are_not_called_left_out(tmp_path: Path) -> None:
    write_ogb_binary_folder(tmp_path / "data")
    result = call(tmp_path, "ingest", "g", str(tmp_path / "data"), "--workers", "0")
    assert result.exit_code == 0
    assert Catalog(tmp_path / "catalog")["g"].vertices().has_feature
    assert "not stored" not in result.output
    np.savez(tmp_path / "e.npz", edge_index=np.array([[0, 1, 2], [1, 2, 0]]), x=np.ones((3, 4), np.float32))
    assert "not stored (feature" in call(tmp_path, "ingest", "n", str(tmp_path / "e.npz"), "--workers", "0").output


def test_a_folder_may_have_links_to_its_files(tmp_path: Path) -> None:
    # As a cache of downloads has them, which keeps every file once and elsewhere.
    raw = tmp_path / "data" / "raw"
    raw.mkdir(parents=True)
    (raw / "num-node-list.csv").write_text("3\n")
    (raw / "num-edge-list.csv").write_text("2\n")
    (tmp_path / "blob").write_text("0,1\n1,2\n")
    (raw / "edge.csv").symlink_to(tmp_path / "blob")
    assert call(tmp_path, "ingest", "g", str(tmp_path / "data"), "--workers", "0").exit_code == 0


def test_a_dictionary_of_long_text_takes_little_memory(tmp_path: Path) -> None:
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(60_000, np.int32)), pa.array(["x" * 60_000, "b"]))
    pq.write_table(pa.table({"s": words, "t": words}), tmp_path / "e.parquet", compression="zstd")
    table = ParquetTable.open(open_file(str(tmp_path / "e.parquet")))
    rows = [len(columns[0]) for _, columns in table.read_arrow(["s", "t"], range(1), 60_000)]
    assert sum(rows) == 60_000
    assert max(rows) <= 1024
