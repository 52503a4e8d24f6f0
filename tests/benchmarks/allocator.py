"""Settings of glibc's allocator that all sides of a benchmark share."""

from __future__ import annotations

#: glibc keeps what was freed, instead of giving it back and faulting it in again for every result.
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
