"""Small files that claim to be huge, or expand to huge data: ten for each format with compression or a header.

``BOMBS`` has the files of each format by name. ``python bombs.py FOLDER`` (with ``PYTHONPATH=tests``) writes all of
them below a folder, reads each, and prints for each how much memory that took.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnloom.pipeline.sources.format import open_edges
from gnnloom.storage import Catalog
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.schema import FORMAT_VERSION, VERSION_ENTRY
from gnnloom.storage.upkeep.archive import HEAD, TAIL
from gnnloom.storage.upkeep.archive_import import import_dataset

MIB = 1 << 20
#: Memory in bytes that reading a bomb may take, apart from four times its size.
MOST_MEMORY = 64 * MIB
#: Bytes to which a bomb expands: half more than may be taken.
EXPANDED = 96 * MIB
#: A number of edges, rows or bytes that no file has.
HUGE = 10**18

Bombs = Mapping[str, bytes]


def zipped(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def crowded(count: int) -> bytes:
    """A zip archive whose directory lists one member again and again."""
    one = zipped({"a": b""}, zipfile.ZIP_STORED)
    at = one.index(b"PK\1\2")
    entry = one[at : one.index(b"PK\5\6")]
    end = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, count * len(entry), at)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, at + count * len(entry), 1)
    last = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return one[:at] + entry * count + end + locator + last


def overstated(archive: bytes, name: bytes, size: int) -> bytes:
    """The same archive with another size of a member, in its header and in the directory."""
    changed = bytearray(archive)
    for signature, field, at_name in ((b"PK\3\4", 18, 30), (b"PK\1\2", 20, 46)):
        at = changed.index(signature)
        while changed[at + at_name : at + at_name + len(name)] != name:
            at = changed.index(signature, at + 1)
        struct.pack_into("<2I", changed, at + field, size, size)
    return bytes(changed)


def _pickled(operations: bytes) -> bytes:
    return b"\x80\x02" + operations + b"."


def _torch(pickled: bytes, method: int = zipfile.ZIP_STORED, **others: bytes) -> bytes:
    return zipped({"a/data.pkl": pickled, **{f"a/{name}": content for name, content in others.items()}}, method)


def torch_bombs() -> Bombs:
    """Files of ``torch.save``, most of them with hostile pickles."""
    record = b"ccollections\nOrderedDict\nq\x00"
    long_text = b"X" + struct.pack("<I", MIB) + b"x" * MIB + b"q\x01"
    many = b"(" + b"N" * 200_000 + b"tq\x01"
    honest = _torch(_pickled(b"}"))
    return {
        "deflated pickle": _torch(_pickled(b"]" * EXPANDED), zipfile.ZIP_DEFLATED),
        "deflated byte order": zipped({"a/data.pkl": _pickled(b"}"), "a/byteorder": b"\0" * EXPANDED}),
        "lists": _torch(_pickled(b"]" * 2 * MIB)),
        "marks": _torch(_pickled(b"(" * 2 * MIB)),
        "memo": _torch(_pickled(b"N" + b"".join(b"r" + struct.pack("<I", at) for at in range(MIB)))),
        "byte array": _torch(b"\x80\x05\x96" + struct.pack("<Q", EXPANDED) + b"."),
        "text as arguments": _torch(_pickled(record + long_text + b"h\x00h\x01R" * 64)),
        "tuple as arguments": _torch(_pickled(record + many + b"h\x00h\x01R" * 512)),
        "members": crowded(400_000),
        "overstated pickle": overstated(honest, b"a/data.pkl", 0xFFFFFFF0),
    }


def npy(shape: str, dtype: str = "'<i8'", content: bytes = b"", length: int | None = None) -> bytes:
    """An ``.npy`` file of version 2 with any header."""
    header = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\2\0" + struct.pack("<I", len(header) if length is None else length) + header + content


def npz_bombs() -> Bombs:
    """Archives of NumPy arrays."""
    zeros = bytes(EXPANDED)
    pair, one = npy("(2, 2)", content=bytes(32)), npy("(1,)", content=bytes(8))
    text = npy("()", "'<U3'", "csr".encode("utf-32-le"))
    matrix = {"indices.npy": one, "indptr.npy": one, "shape.npy": npy("(2,)", content=bytes(16))}
    nested = zipped({"edge_index.npy": npy(f"(2, {EXPANDED // 16})", content=zeros)})
    return {
        "format": zipped({**matrix, "format.npy": npy(f"({EXPANDED},)", "'S1'", zeros)}),
        "shape": zipped({**matrix, "format.npy": text, "shape.npy": npy(f"({EXPANDED // 8},)", content=zeros)}),
        "long element": zipped({"edge_index.npy": npy("(2, 1)", f"'S{EXPANDED // 2}'", zeros)}),
        "claimed shape": zipped({"edge_index.npy": npy(f"(2, {HUGE})", content=bytes(64))}),
        "long header": zipped({"edge_index.npy": npy("(2, 2)", content=b" " * EXPANDED, length=EXPANDED)}),
        "zeros": nested,
        "lzma": zipped({"edge_index.npy": npy(f"(2, {EXPANDED // 16})", content=zeros)}, zipfile.ZIP_LZMA),
        "members": crowded(400_000),
        "overstated": overstated(zipped({"edge_index.npy": pair}, zipfile.ZIP_STORED), b"edge_index.npy", 0xFFFFFFF0),
        "archive in an archive": zipped({"edge_index.npy": nested * 100}),
    }


def npy_bombs() -> Bombs:
    """NumPy files whose headers claim more than there is."""
    deep = "[('a', " * 900 + "'<i8'" + ")]" * 900
    return {
        "edges": npy(f"(2, {HUGE})"),
        "beyond 64 bits": npy(f"(2, {10**40})"),
        "negative": npy(f"(2, -{HUGE})"),
        "many axes": npy("(" + "2, " * 3000 + ")"),
        "long digits": npy("(2, " + "9" * 9000 + ")"),
        "header length": npy("(2, 2)", length=0xFFFFFFFF),
        "long header": npy("(2, 2)", length=EXPANDED, content=b" " * MIB),
        "objects": npy("(2, 2)", "'|O'", bytes(32)),
        "long element": npy("(2, 1)", "'|S2147483647'", bytes(32)),
        "deep type": npy("(2, 2)", deep, bytes(32)),
    }


def gzip_bombs() -> Bombs:
    """Compressed lists of edges."""
    name = b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 8 * MIB + b"\0" + gzip.compress(b"0 1\n")[10:]
    extra = b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff\xff" + bytes(0xFFFF) + gzip.compress(b"0 1\n")[10:]
    line = gzip.compress(b"0 1\n")
    return {
        "zeros": gzip.compress(bytes(EXPANDED)),
        "line feeds": gzip.compress(b"\n" * MIB),
        "one line": gzip.compress(b"1" * EXPANDED),
        "one comment": gzip.compress(b"#" * EXPANDED),
        "spaces": gzip.compress(b"0 1" + b" " * EXPANDED),
        "quotes": gzip.compress(b'"' * EXPANDED),
        "name": name,
        "extra fields": extra,
        "members": line * 100_000,
        "gzip in gzip": gzip.compress(gzip.compress(bytes(EXPANDED)) * 100),
    }


def zstd(content: bytes, window_log: int | None = None, times: int = 1) -> bytes:
    """One Zstandard frame of ``times`` the content, which is one repeated byte if there is a window.

    A frame with a window consists of blocks of 128 KiB that repeat a byte (RFC 8878, 3.1.1.2).
    """
    if window_log is None:
        return bytes(pa.compress(content * times, codec="zstd", asbytes=True))
    repeated = struct.pack("<I", (128 << 10) << 3 | 1 << 1)[:3] + content[:1]
    last = struct.pack("<I", 1 << 3 | 1 << 1 | 1)[:3] + content[:1]
    return b"\x28\xb5\x2f\xfd\0" + bytes([(window_log - 10) << 3]) + repeated * times + last


def zstd_bombs() -> Bombs:
    """Compressed lists of edges."""
    blocks = EXPANDED >> 17
    line = zstd(b"0 1\n")
    skipped = b"\x50\x2a\x4d\x18" + struct.pack("<I", 0xFFFFFFF0) + line
    return {
        "zeros": zstd(bytes(EXPANDED)),
        "line feeds": zstd(b"\n" * MIB),
        "window": zstd(b" ", 27, blocks),
        "second window": line + zstd(b" ", 27, blocks),
        "larger window": zstd(b" ", 31, blocks),
        "largest window": zstd(b" ", 41, blocks),
        "spaces": zstd(b" ", 20, blocks),
        "skipped": skipped,
        "frames": line * 100_000,
        "frame in frame": zstd(zstd(bytes(EXPANDED)) * 100),
    }


def _parquet(**options: Any) -> bytes:
    file = io.BytesIO()
    zeros = np.zeros(EXPANDED // 8, np.int64)
    table = pa.table({"src": zeros, "dst": zeros}) if "table" not in options else options.pop("table")
    pq.write_table(table, file, **options)
    return file.getvalue()


def _one_page(compression: str) -> bytes:
    return _parquet(compression=compression, use_dictionary=False, data_page_size=1 << 30, write_batch_size=1 << 30)


def _footer(parquet: bytes, change: Callable[[bytes], bytes]) -> bytes:
    size = struct.unpack("<I", parquet[-8:-4])[0]
    footer = change(parquet[-8 - size : -8])
    return parquet[: -8 - size] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def parquet_bombs() -> Bombs:
    """Parquet files with pages that expand, and headers that claim more than there is."""
    small = _parquet(table=pa.table({"src": [0, 1], "dst": [1, 0]}), compression="none", use_dictionary=False)
    names = pa.table({"src": ["x" * EXPANDED], "dst": ["y"]})
    wide = pa.table({f"column {number}": [0] for number in range(20_000)})
    two = b"\x26\x04"  # a thrift field of 64 bits with the number 2: rows
    return {
        "zstd page": _one_page("zstd"),
        "gzip page": _one_page("gzip"),
        "snappy page": _one_page("snappy"),
        "brotli page": _one_page("brotli"),
        "dictionary": _parquet(use_dictionary=True, compression="zstd", data_page_size=1 << 30),
        "long name": _parquet(table=names, compression="zstd"),
        "columns": _parquet(table=wide),
        "rows": _footer(small, lambda footer: footer.replace(two, b"\x26" + b"\xfe" * 8 + b"\x7f")),
        "footer length": small[:-8] + struct.pack("<I", 0x7FFFFFFF) + b"PAR1",
        "page header": small.replace(b"\x15\x00\x15\x2c\x15\x2c", b"\x15\x00" + b"\x15\xfe\xff\xff\xff\x07" * 2),
    }


def matrix_market_bombs() -> Bombs:
    """MatrixMarket files whose headers claim more than there is."""
    banner = b"%%MatrixMarket matrix coordinate pattern general\n"
    return {
        "entries": banner + b"%d %d %d\n1 1\n" % (9, 9, HUGE),
        "rows": banner + b"%d %d 1\n1 1\n" % (HUGE, HUGE),
        "all": banner + b"%d %d %d\n1 1\n" % (HUGE, HUGE, HUGE),
        "beyond 64 bits": banner + b"%d %d 1\n1 1\n" % (10**40, 10**40),
        "long digits": banner + b"9" * 10_000 + b" 9 1\n1 1\n",
        "long banner": banner[:-1] + b" " * 8 * MIB + b"\n1 1 1\n1 1\n",
        "comments": banner + b"%\n" * MIB + b"1 1 1\n1 1\n",
        "long comment": banner + b"%" * 8 * MIB + b"\n1 1 1\n1 1\n",
        "ids": banner + b"9 9 1\n%d 1\n" % HUGE,
        "negative": banner + b"9 9 -%d\n1 1\n" % HUGE,
    }


def metis_bombs() -> Bombs:
    """METIS files whose headers claim more than there is."""
    return {
        "vertices": b"%d 1\n2\n1\n" % HUGE,
        "edges": b"2 %d\n2\n1\n" % HUGE,
        "both": b"%d %d\n2\n1\n" % (HUGE, HUGE),
        "beyond 64 bits": b"%d 1\n2\n1\n" % 10**40,
        "long digits": b"9" * 10_000 + b" 1\n2\n1\n",
        "weights": b"2 1 10 %d\n1 2\n1 1\n" % HUGE,
        "long header": b"2 1" + b" " * 8 * MIB + b"\n2\n1\n",
        "comments": b"%\n" * MIB + b"2 1\n2\n1\n",
        "lines": b"%d 1\n" % MIB + b"\n" * MIB,
        "ids": b"2 1\n%d\n1\n" % HUGE,
    }


def _tar(members: Mapping[str, bytes], files: int, num_bytes: int) -> bytes:
    file = io.BytesIO()
    head = {"dataset": "web", VERSION_ENTRY: FORMAT_VERSION, "files": files, "bytes": num_bytes}
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in {HEAD: json.dumps(head).encode(), **members}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def _special(kind: bytes, **fields: Any) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        member = tarfile.TarInfo("graph/a")
        member.type = kind
        for name, value in fields.items():
            setattr(member, name, value)
        tar.addfile(member)
    return _tar({}, 1, 1)[:1024] + file.getvalue()


def archive_bombs() -> Bombs:
    """Archives of datasets."""
    empty = {f"graph/{number:032d}": b"" for number in range(20_000)}
    brackets = b'{"digests": ' + b"[" * (8 * MIB)
    return {
        "zeros": gzip.compress(_tar({"graph/a": bytes(EXPANDED)}, 1, EXPANDED)),
        "zeros in zstd": zstd(_tar({"graph/a": bytes(EXPANDED)}, 1, EXPANDED)),
        "head": gzip.compress(_special(tarfile.REGTYPE)[1024:] + b" " * EXPANDED),
        "files": gzip.compress(_tar(empty, len(empty), 0), 1),
        "tail": gzip.compress(_tar({TAIL: b" " * EXPANDED}, 0, 0)),
        "nested tail": gzip.compress(_tar({TAIL: brackets}, 0, 0)),
        "metadata": gzip.compress(_tar({"zarr.json": b'{"a": [' + b"{}," * (16 * MIB)}, 1, EXPANDED)),
        "window": zstd(b"\0", 27, EXPANDED >> 17),
        "long name": gzip.compress(_special(tarfile.GNUTYPE_LONGNAME, size=EXPANDED) + bytes(EXPANDED)),
        "link": _special(tarfile.SYMTYPE, linkname="/etc/passwd"),
    }


def _read_edges(name: str) -> Callable[[Path], object]:
    def read(file: Path) -> int:
        source = open_edges(name, [str(file)], {})
        source.num_vertices()
        return sum(len(chunk.source) for span in source.ranges() for chunk in source.read(span))

    return read


def _import(file: Path) -> None:
    import_dataset(Catalog(file.with_suffix(".catalog")), file)


#: Each format: the suffix of its files, its bombs, and its reader.
BOMBS: dict[str, tuple[str, Callable[[], Bombs], Callable[[Path], object]]] = {
    "torch": (".pt", torch_bombs, _read_edges("pyg")),
    "npz": (".npz", npz_bombs, _read_edges("npz")),
    "npy": (".npy", npy_bombs, _read_edges("npy")),
    "gzip": (".txt.gz", gzip_bombs, _read_edges("snap")),
    "zstd": (".txt.zst", zstd_bombs, _read_edges("snap")),
    "parquet": (".parquet", parquet_bombs, _read_edges("parquet")),
    "matrix market": (".mtx", matrix_market_bombs, _read_edges("mtx")),
    "metis": (".graph", metis_bombs, _read_edges("metis")),
    "archive": (".tar", archive_bombs, _import),
}


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def measured(read: Callable[[Path], object], file: Path) -> tuple[int, str]:
    """Bytes by which reading a file raises the peak of the memory, and the error or ``read``."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _status("VmRSS")
    outcome = "read"
    try:
        read(file)
    except GnnloomError as error:
        outcome = f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - what must not happen is reported, not raised
        outcome = f"TRACEBACK {type(error).__name__}: {error}"
    return _status("VmHWM") - before, outcome


def main() -> None:
    """Write, read and measure the bombs of the given formats, by default all; prints a line of JSON for each."""
    folder, *names = sys.argv[1:]
    for number, name in enumerate(names or BOMBS):
        suffix, make, read = BOMBS[name]
        bombs = make()
        files = {bomb: Path(folder) / f"{number}-{bomb.replace(' ', '-')}{suffix}" for bomb in bombs}
        for bomb, file in files.items():
            file.write_bytes(bombs[bomb])
        # Kernels and libraries that are loaded with the first file are not the file's.
        measured(read, min(files.values(), key=lambda file: file.stat().st_size))
        for bomb, file in files.items():
            began = time.process_time()
            memory, outcome = measured(read, file)
            found = {
                "format": name, "bomb": bomb, "size": file.stat().st_size, "memory": memory, "outcome": outcome,
                "seconds": round(time.process_time() - began, 2),
            }  # fmt: skip
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
