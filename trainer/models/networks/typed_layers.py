"""Runs a module for graphs with types layer by layer, although the module offers only its forward.

A layer is a call of a submodule that takes edges, such as a ``HeteroConv`` or a convolution of a module that PyG's
``to_hetero`` made. Layers whose inputs depend on no other layer have level 1, layers that read their outputs level 2,
and so on. With the outputs of all lower levels at hand, the forward gives the outputs of the next level from direct
neighbors alone: it is called again, and calls of lower levels return what is stored. A trial checks that this gives the
    outputs of the whole graph; see :mod:`gnnloom.trainer.models.networks.typed_reach`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gnnloom.storage.errors import InputError
from gnnloom.trainer.models.networks.typed_model import TypedBatch, TypedModel
from gnnloom.trainer.place.place import Place

#: The rows of a call's output: the number of the call, and the type of their vertices.
OutputRows = tuple[int, str]
#: Replaces a layer's call; gets the layer's name, its arguments, and the function that computes its output.
_Handler = Callable[[str, Sequence[Any], Callable[[], Any]], Any]


@dataclass(frozen=True)
class LayerCall:
    """A call of a submodule that takes edges.

    Attributes:
        name: name of the submodule.
        level: one more than the levels of the calls that its input depends on.
        widths: columns of the output by type; None for a type that the call returns nothing for.
        by_type: it returns a mapping by type.
    """

    name: str
    level: int
    widths: Mapping[str, int | None]
    by_type: bool

    def width(self, of_type: str) -> int:
        """Columns of the output for the vertices of a type; 0 if it has none."""
        return self.widths.get(of_type) or 0


def layers_of(model: TypedModel, batch: TypedBatch, place: Place) -> tuple[LayerCall, ...]:
    """The calls of the layers of a module, in the order of its forward; empty if no layers are found.

    Args:
        batch: whole rows of a graph, on which the module is tried.
    """
    counts = {name: len(batch.fields[name]["n_id"]) for name in model.schema.counts}
    roots, leaves = _Observer(model, batch).calls(place)
    tried = _Levels(model, batch, place, counts)
    alone = tried.calls({each.name for each in leaves})
    if len(alone) != len(leaves):
        return ()
    levels = {id(leaf): call.level for leaf, call in zip(leaves, alone, strict=True)}
    joined = {name for root in roots for name in _widest(root, levels, counts)}
    # A submodule such as HeteroConv adds up the outputs of several convolutions, so that fewer rows are stored.
    return tried.calls(joined) or alone


def calls_of(calls: Sequence[LayerCall], level: int, of_type: str) -> list[int]:
    """Numbers of the calls of a level whose outputs have rows of a type."""
    return [number for number, each in enumerate(calls) if each.level == level and each.width(of_type)]


def level_outputs(
    model: TypedModel,
    place: Place,
    calls: Sequence[LayerCall],
    level: int,
    of_type: str,
    batch: TypedBatch,
    given: Mapping[OutputRows, Tensor],
) -> list[Tensor]:
    """The output rows of the leading vertices of a type, for each call of a level that has some, in order.

    Args:
        given: rows of the vertices of the batch, for the calls of lower levels.

    Raises:
        InputError: the module calls its layers differently from before.
    """
    run = _LevelRun(model, place, calls, level, batch, given, of_type)
    try:
        with _replaced(model.module, {each.name for each in calls}, run):
            model.output(batch, place)
    except _EnoughError:
        return [run.found[number] for number in sorted(run.found)]
    raise run.differs()


def last_outputs(
    model: TypedModel,
    place: Place,
    calls: Sequence[LayerCall],
    batch: TypedBatch,
    given: Mapping[OutputRows, Tensor],
) -> Tensor:
    """(num_seeds, num_outputs) the module's result for the seeds of a batch, from the outputs of lower levels.

    Raises:
        InputError: as :func:`level_outputs`.
    """
    level = max(each.level for each in calls)
    run = _LevelRun(model, place, calls, level, batch, given, None)
    with _replaced(model.module, {each.name for each in calls}, run):
        output = model.output(batch, place)
    if run.number != len(calls):
        raise run.differs()
    return output


class _EnoughError(Exception):
    """All wanted outputs are known, so the rest of the forward need not run."""


class _LevelRun:
    """Replaces the calls of lower levels by rows, and records the outputs of one level."""

    def __init__(
        self,
        model: TypedModel,
        place: Place,
        calls: Sequence[LayerCall],
        level: int,
        batch: TypedBatch,
        given: Mapping[OutputRows, Tensor],
        of_type: str | None,
    ) -> None:
        self._model, self._place, self._calls, self._level = model, place, calls, level
        self._batch, self._given, self._of_type = batch, given, of_type
        self._wanted = set() if of_type is None else set(calls_of(calls, level, of_type))
        self.found, self.number = dict[int, Tensor](), 0

    def __call__(self, name: str, arguments: Sequence[Any], compute: Callable[[], Any]) -> Any:  # noqa: ARG002
        number, self.number = self.number, self.number + 1
        if number >= len(self._calls) or self._calls[number].name != name:
            raise self.differs()
        call = self._calls[number]
        if call.level != self._level or (self._of_type is not None and number not in self._wanted):
            return self._output(number, call)
        output = compute()
        if self._of_type is not None:
            self.found[number] = self._rows(call, output, self._of_type)
            if len(self.found) == len(self._wanted):
                raise _EnoughError
        return output

    def _rows(self, call: LayerCall, output: Any, of_type: str) -> Tensor:
        rows = output.get(of_type) if isinstance(output, Mapping) else output
        count = self._batch.num_seeds.get(of_type, 0)
        if not isinstance(rows, Tensor) or len(rows) < count or rows.shape[1:] != (call.width(of_type),):
            raise self.differs()
        return rows[:count]

    def _output(self, number: int, call: LayerCall) -> Any:
        """The output of a call that is not computed: known rows, or any rows for higher levels."""
        found = {of_type: self._known(number, of_type, width) for of_type, width in call.widths.items()}
        return found if call.by_type else next(iter(found.values()))

    def _known(self, number: int, of_type: str, width: int | None) -> Tensor | None:
        if width is None:
            return None
        if (number, of_type) in self._given:
            return self._given[number, of_type]
        shape = len(self._batch.fields[of_type]["n_id"]), width
        return self._place.lasting(shape, self._place.sum_dtype).fill_(0)

    def differs(self) -> InputError:
        """The error of a module whose forward depends on the graph."""
        return InputError(
            f"model {self._model.options.module}: its forward does not call the layers on this graph that it calls on"
            " a small graph of the same types; call the same layers on every graph"
        )


@contextmanager
def _replaced(module: nn.Module, names: set[str], handler: _Handler) -> Iterator[None]:
    """Inside the block, calls of submodules go to a handler, except calls inside such calls."""
    inside = False

    def replaced(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside:
                return forward(*args, **kwargs)
            inside = True
            try:
                return handler(name, [*args, *kwargs.values()], lambda: forward(*args, **kwargs))
            finally:
                inside = False

        return call

    with _forwards(module, lambda name, forward: replaced(name, forward) if name in names else None):
        yield


@contextmanager
def _forwards(
    module: nn.Module, other: Callable[[str, Callable[..., Any]], Callable[..., Any] | None]
) -> Iterator[None]:
    """Inside the block, submodules have other functions as ``forward``; None leaves one as it is."""
    changed = list[tuple[nn.Module, Any]]()
    try:
        for name, each in module.named_modules():
            found = other(name, each.forward) if name else None
            if found is not None:
                changed.append((each, each.__dict__.get("forward")))
                each.__dict__["forward"] = found
        yield
    finally:
        for each, before in changed:
            if before is None:
                del each.__dict__["forward"]
            else:
                each.__dict__["forward"] = before


@dataclass(eq=False)
class _Observed:
    """A call that takes edges, the relations of the edges, and the calls inside it that take edges."""

    name: str
    relations: set[tuple[str, str, str]]
    inside: list[_Observed] = field(default_factory=list)
    output: Any = None


class _Observer:
    """Records which submodules take the edges that the module gets."""

    def __init__(self, model: TypedModel, batch: TypedBatch) -> None:
        self._model, self._batch = model, batch
        self._edges = {id(batch.fields[each]["edge_index"]): each for each in model.schema.columns}
        self._outer = [_Observed("", set())]
        self._leaves = list[_Observed]()

    def calls(self, place: Place) -> tuple[list[_Observed], list[_Observed]]:
        """The calls that take edges: the outermost ones, and the ones with no other call inside."""
        with _forwards(self._model.module, self._noted):
            self._model.output(self._batch, place)
        return self._outer[0].inside, self._leaves

    def _noted(self, name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            relations = {
                self._edges[id(each)] for each in _tensors([*args, *kwargs.values()]) if id(each) in self._edges
            }
            if not relations:
                return forward(*args, **kwargs)
            own = _Observed(name, relations)
            self._outer[-1].inside.append(own)
            self._outer.append(own)
            own.output = forward(*args, **kwargs)
            self._outer.pop()
            # A submodule that returns edges, such as PyG's TrimToLayer, is not a layer.
            if any(id(each) in self._edges for each in _tensors(own.output)):
                self._outer[-1].inside.remove(own)
            elif not own.inside:
                self._leaves.append(own)
            return own.output

        return call


class _Levels:
    """Finds the levels of calls: calls whose inputs are known form the next level, until no calls are left."""

    def __init__(self, model: TypedModel, batch: TypedBatch, place: Place, counts: Mapping[str, int]) -> None:
        self._model, self._batch, self._place, self._counts = model, batch, place, counts
        self._edges = {id(batch.fields[each]["edge_index"]): each for each in model.schema.columns}

    def calls(self, names: set[str]) -> tuple[LayerCall, ...]:
        """The calls of some submodules; none if some do not return rows of vertices, or have no level."""
        found, outputs, level = dict[int, LayerCall](), dict[int, Any](), 0
        while True:
            level += 1
            new, total = self._next(names, level, outputs, found)
            outputs |= new
            if len(found) != len(outputs) or not new:
                return ()
            if len(outputs) == total:
                return tuple(found[number] for number in range(total))

    def _next(
        self, names: set[str], level: int, outputs: Mapping[int, Any], found: dict[int, LayerCall]
    ) -> tuple[dict[int, Any], int]:
        """The outputs of the calls of a level by number, and the number of all calls.

        Args:
            outputs: outputs of lower levels.
            found: gets the calls of the level that return rows of vertices.
        """
        new, total = dict[int, Any](), 0

        def handle(name: str, arguments: Sequence[Any], compute: Callable[[], Any]) -> Any:
            nonlocal total
            number, total = total, total + 1
            if number in outputs:
                return outputs[number]
            output, tensors = compute(), list(_tensors(arguments))
            if not any(each.is_floating_point() and bool(each.isnan().any()) for each in tensors):
                relations = {self._edges[id(each)] for each in tensors if id(each) in self._edges}
                new[number], widths = output, _widths(output, relations, self._counts)
                if widths is not None:
                    found[number] = LayerCall(name, level, widths, isinstance(output, Mapping))
            return _unknown(output)

        with _replaced(self._model.module, names, handle):
            self._model.output(self._batch, self._place)
        return new, total


def _widest(call: _Observed, levels: Mapping[int, int], counts: Mapping[str, int]) -> list[str]:
    """Names of the outermost calls whose layers have one level."""
    inside, found = [call], set[int]()
    while inside:
        each = inside.pop()
        inside += each.inside
        if not each.inside:
            found.add(levels[id(each)])
    if len(found) == 1 and _widths(call.output, call.relations, counts) is not None:
        return [call.name]
    return [name for each in call.inside for name in _widest(each, levels, counts)]


def _widths(
    output: Any, relations: set[tuple[str, str, str]], counts: Mapping[str, int]
) -> dict[str, int | None] | None:
    """Columns of an output by type; None if its rows are not of vertices."""
    targets = {each[2] for each in relations}
    if isinstance(output, Tensor) and len(targets) == 1:
        output = dict.fromkeys(targets, output)
    if not isinstance(output, Mapping) or not output or not set(output) <= set(counts):
        return None
    for of_type, rows in output.items():
        if rows is None:
            continue
        if not isinstance(rows, Tensor) or rows.dim() != 2 or len(rows) != counts[of_type]:
            return None
        if not rows.is_floating_point() or not rows.shape[1]:
            return None
    return {of_type: None if rows is None else rows.shape[1] for of_type, rows in output.items()}


def _unknown(output: Any) -> Any:
    """An output of the same shape with NaN values."""
    if isinstance(output, Tensor) and output.is_floating_point():
        return output * torch.nan
    if isinstance(output, Mapping):
        return {name: _unknown(each) for name, each in output.items()}
    return output


def _tensors(given: Any) -> Iterator[Tensor]:
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, Mapping):
        for each in given.values():
            yield from _tensors(each)
    elif isinstance(given, (list, tuple)):
        for each in given:
            yield from _tensors(each)
