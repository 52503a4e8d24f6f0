"""The fields that all tasks of a phase have in common, as a plugin of Dask's workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distributed import WorkerPlugin


class CommonFields(WorkerPlugin):
    """Holds values on a worker, where tasks find them by the plugin's name.

    Attributes:
        values: values by field.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
