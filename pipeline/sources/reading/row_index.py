"""Where the rows of a text file begin, so that tasks can read ranges of them."""

from __future__ import annotations

from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, pairwise

from gnnloom.pipeline.sources.reading.columns import BEGINNING, RowStart
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.line_counts import count_data_lines
from gnnloom.pipeline.sources.reading.lines import whole_lines

#: Bytes of a local, uncompressed file after which the number of the row is kept, and threads that count rows.
_INDEX_BYTES, _THREADS = 32 << 20, 4


@dataclass(frozen=True)
class RowIndex:
    """Where reading can begin in a file with a row in every line that is not blank.

    Attributes:
        starts: ascending; the first is the beginning of the file, and a compressed or remote file has only that one.
        num_rows: rows of the file; None if they were not counted.
    """

    starts: tuple[RowStart, ...] = (BEGINNING,)
    num_rows: int | None = None

    def before(self, row: int) -> RowStart:
        """The last place to begin at for reading a row."""
        after = bisect_right(self.starts, row, key=lambda start: start.row)
        return self.starts[max(0, after - 1)]


def index_rows(file: SourceFile) -> RowIndex:
    """Count the rows of a local, uncompressed file, in ranges and as fast as the disk reads it; not those of others."""
    if not file.is_seekable:
        return RowIndex()
    bounds = [*range(0, file.size or 0, _INDEX_BYTES), file.size or 0]
    with ThreadPoolExecutor(_THREADS) as threads:
        counts = list(threads.map(lambda span: count_rows(file, *span), pairwise(bounds)))
    rows = list(accumulate(counts, initial=0))
    # A line belongs to the range in which it begins, so reading at a bound begins with the first line after it.
    starts = tuple(RowStart(*start) for start in zip(bounds, rows, strict=True))[:-1]
    return RowIndex(starts or (BEGINNING,), rows[-1])


def count_rows(file: SourceFile, start: int = 0, stop: int | None = None) -> int:
    """Count the rows that begin in a range of bytes; by default, all rows."""
    return count_data_lines(whole_lines(file, start, stop), has_comments=False)
