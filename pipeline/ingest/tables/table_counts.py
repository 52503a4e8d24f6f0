"""What bringing the rows of a table to the vertices will do, phase by phase."""

from __future__ import annotations

from gnnloom.pipeline.ingest.tables.buckets import VertexBuckets
from gnnloom.pipeline.ingest.tables.gathered_rows import GATHERED_ROW_BYTES, run_bytes
from gnnloom.pipeline.ingest.tables.routing import BOUNDS_PER_TASK
from gnnloom.pipeline.shuffle.columns import row_bytes
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.tasks.phase import count
from gnnloom.pipeline.tasks.phase_counts import PhaseCount


def table_counts(
    buckets: VertexBuckets, num_rows: int, table_bytes: int, num_ranges: int, memory: int
) -> list[PhaseCount]:
    """What the phases will do for a table whose ids are spread evenly over the buckets.

    Args:
        buckets: of the vertices.
        num_rows: rows of the table.
        table_bytes: bytes of the table.
        num_ranges: tasks that read the table.
        memory: bytes that a worker may use.
    """
    shuffle, value_bytes = buckets.shuffle("any"), buckets.values.num_bytes
    gathered = -(-num_rows * (value_bytes + buckets.id_bytes + GATHERED_ROW_BYTES) // max(1, num_ranges))
    runs = num_ranges * -(-gathered // run_bytes(memory))
    num_keys = min(num_rows, runs * buckets.num_buckets)
    total = num_rows * (row_bytes(shuffle.columns) + buckets.id_bytes)
    plan = ShufflePlan.stated(shuffle, num_ranges, buckets.num_bytes, num_keys)
    bounds, range_bytes = -(-buckets.num_buckets // BOUNDS_PER_TASK), -(-table_bytes // max(1, num_ranges))
    return [
        PhaseCount("cut ids", bounds),
        PhaseCount("route rows", num_ranges, num_ranges, 1, 1, table_bytes, total + 8 * num_keys, range_bytes),
        *count(plan.merges("merge rows")),
        _write_count(buckets, plan, total),
    ]


def _write_count(buckets: VertexBuckets, plan: ShufflePlan, total: int) -> PhaseCount:
    """The phase that writes the array.

    Args:
        total: bytes of all rows.
    """
    opens = []
    for start in range(0, buckets.num_vertices, buckets.task_rows):
        own = buckets.buckets_of(start, min(start + buckets.task_rows, buckets.num_vertices))
        opens.append(plan.opens((own.start, own.stop)))
    largest = min(total, -(-total * buckets.task_rows // buckets.num_vertices))
    written = buckets.num_vertices * buckets.values.num_bytes
    arrays = len(plan.shuffle.columns) + 1
    return PhaseCount("write rows", len(opens), sum(opens), max(opens), arrays, total, written, largest)
