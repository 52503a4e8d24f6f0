"""Turns items into tasks of a Dask cluster: keys are readable, and large common fields are sent once.

The tasks of a phase often describe the same source, whose list of files may take a megabyte. Such a field is sent to
each worker once, as a plugin, which Dask also gives to workers that start later; the tasks carry the rest.
"""

from __future__ import annotations

import copy
import errno
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from gnnloom.storage.errors import MOST_MESSAGE, GnnloomError
from gnnloom.storage.wording import shortened

if TYPE_CHECKING:
    from distributed import Client

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Bytes from which on a field that all items have in common is sent once.
SHARED_BYTES = 4096
#: Errors of network file systems that pass.
TRANSIENT = frozenset({
    errno.EAGAIN, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ECONNRESET, errno.ENETDOWN, errno.ENETUNREACH,
    errno.EHOSTDOWN, errno.EREMOTEIO,
})  # fmt: skip
#: How often a task is tried, and the seconds before the second attempt; the third waits twice as long.
ATTEMPTS, FIRST_PAUSE = 3, 1.0


@dataclass(frozen=True)
class SentItems:
    """Items as they are sent.

    Attributes:
        items: the items, or ``_Slim`` ones without the common fields.
        keys: a key for each.
        common: the fields that are sent once, by name.
        name: of the plugin that holds them.
    """

    items: Sequence[Any]
    keys: list[str]
    common: Mapping[str, Any]
    name: str


@dataclass(frozen=True)
class _Slim:
    """An item without the fields that the plugin ``name`` holds."""

    item: Any
    name: str


def prepare(function: Callable[[Item], Any], items: Sequence[Item]) -> SentItems:
    """Choose the keys of the tasks, and take out large fields that all items have in common."""
    # Tasks work by writing files: the same task must run again, so its key must be new.
    call = uuid.uuid4().hex[:8]
    keys = [f"{task_name(function, item, number)}-{call}" for number, item in enumerate(items)]
    common, name = _common_fields(items), f"gnnloom-{call}"
    return SentItems(
        [_Slim(_with(item, dict.fromkeys(common)), name) for item in items] if common else items, keys, common, name
    )


def task_name(function: Callable[[Any], Any], item: Any, number: int) -> str:
    """Name of a task in Dask's dashboard, such as ``graph-scatter-00012``."""
    name = getattr(item, "name", None)
    if not isinstance(name, str):
        return f"{getattr(function, '__name__', 'task').strip('_')}-{number:05d}"
    kind = getattr(getattr(item, "writer", None), "kind", None)
    return "-".join([*([kind] if kind else []), *name.split("/")])


def _common_fields(items: Sequence[Any]) -> dict[str, Any]:
    """Large fields with the same object in all items."""
    if len(items) < 2 or not is_dataclass(items[0]):
        return {}
    first = items[0]
    if any(type(item) is not type(first) for item in items):
        return {}
    from distributed.protocol.pickle import dumps  # noqa: PLC0415 - takes a second to import

    shared = [
        field.name
        for field in fields(first)
        if all(getattr(item, field.name) is getattr(first, field.name) for item in items)
    ]
    values = {name: getattr(first, name) for name in shared}
    return {name: value for name, value in values.items() if len(dumps(value)) >= SHARED_BYTES}


def _with(item: Item, values: Mapping[str, Any]) -> Item:
    """A copy of a dataclass with other fields; it was checked when it was made."""
    changed = copy.copy(item)
    for name, value in values.items():
        object.__setattr__(changed, name, value)
    return changed


@contextmanager
def sent_once(client: Client, prepared: SentItems) -> Iterator[None]:
    """Have every worker, also one that starts later, hold the common fields during the block."""
    if not prepared.common:
        yield
        return
    from gnnloom.pipeline.cluster.processes import CommonFields  # noqa: PLC0415 - imports Dask

    client.register_plugin(CommonFields(prepared.common), name=prepared.name)
    try:
        yield
    finally:
        # A client that lost its scheduler would wait for it here, and hide that error behind another one.
        if client.status == "running":
            client.unregister_worker_plugin(prepared.name)


def run_task(item: Any, function: Callable[[Any], Result]) -> Result:
    """Run one task on a worker: complete its item, and try again after an error of the file system that passes.

    Raises:
        GnnloomError: the task's error. Dask would cut a long message at its end, where it says what to do.
    """
    if isinstance(item, _Slim):
        from distributed import get_worker  # noqa: PLC0415 - takes a second to import

        plugin = get_worker().plugins[item.name]
        item = _with(item.item, getattr(plugin, "values"))  # noqa: B009 - Dask knows plugins by their base class
    try:
        return attempted(function, item)
    except GnnloomError as error:
        if len(str(error)) <= MOST_MESSAGE:
            raise
        raise type(error)(*(shortened(str(each), MOST_MESSAGE // len(error.args)) for each in error.args)) from error


def attempted(function: Callable[[Item], Result], item: Item) -> Result:
    """Call a function, up to three times if the file system fails in a way that passes.

    Tasks may run twice, because they write under temporary names or write the same again.
    """
    for attempt in range(ATTEMPTS - 1):
        try:
            return function(item)
        except OSError as error:
            if error.errno not in TRANSIENT:
                raise
            time.sleep(FIRST_PAUSE * 2**attempt)
    return function(item)
