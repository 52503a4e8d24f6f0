"""Commands that read a dataset, and their allowed outcomes after damage: the same result as before, or one error.

A consumer is asked on a catalog that may be damaged. It may refuse it with one error, or succeed with the facts that it
gave on the catalog before the damage. Anything else is a failure: a *wrong* result, a traceback, a crash, a hang.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gnnloom.storage import Catalog
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.manifest import MANIFEST
from gnnloom.storage.upkeep.push import LIST as PUSHED_LIST
from gnnloom.storage.upkeep.push import OBJECTS
from support.commands import Command, file_digest

#: Answers that are right: the result of the undamaged catalog, or one error.
RIGHT, REFUSED = "right", "refused"
#: The answer with exit code 0 and another result than on the undamaged catalog: what nobody would notice.
WRONG = "wrong"
#: Longest time of a consumer of a tiny dataset, in seconds; on a busy machine.
_LONGEST_SECONDS = 120.0
#: Entries of what commands print that differ from one run to the next.
_VOLATILE = re.compile(
    "seconds|memory|bytes|path|file|time|report|prediction|run_folder|written|out$|threads|reused|ranks|url$"
)

_TRAIN = "--hidden 4 --epochs 2 --threads 1 --seed 3"
_ROWS = f"train {{dataset}}/asked --ranks 1 {_TRAIN}"
_OUT_OF_CORE = "--method multilevel"
_PAIRS = f"{_ROWS} --shards {{shards1}} --links {{links}} --output-dim 4"
_GRID = f"{_ROWS} --permutation double"
_PROPAGATE = "propagate {dataset} --ranks 1 --threads 1 --shards {shards1}"


@dataclass(frozen=True)
class Consumer:
    """A command that reads a dataset, in which ``{dataset}``, ``{out}`` and keys of artifacts stand for names.

    Attributes:
        below: folders of the dataset whose files ranks in other processes read; those of this process are observed.
        compared: whether its result must be that of the undamaged dataset.
    """

    name: str
    words: str
    below: tuple[str, ...] = ()
    compared: bool = True


#: Trainings in all modes, and everything else that reads what is stored, to be asked in this order: predictions replace
#: those that are exported before.
CONSUMERS: tuple[Consumer, ...] = (
    Consumer("full", f"{_ROWS} --shards {{shards1}}"),
    Consumer("disk", f"{_ROWS} --shards {{shards1}} --adjacency disk"),
    Consumer("gat", f"{_ROWS} --shards {{shards1}} --model gat --heads 1"),
    Consumer("two ranks", f"train {{dataset}}/asked --ranks 2 {_TRAIN} --shards {{shards2}}", ("shards/{shards2}",)),
    Consumer("broadcast", f"{_GRID} --algorithm broadcast"),
    Consumer("replicated", f"{_GRID} --algorithm replicated"),
    Consumer("summa", f"{_GRID} --algorithm summa"),
    Consumer("split3d", f"{_GRID} --algorithm split3d"),
    Consumer("tensor3d", f"{_GRID} --algorithm tensor3d"),
    Consumer("minibatch", f"{_ROWS} --shards {{shards1}} --mode minibatch --batch-size 16"),
    Consumer("neighbor", f"{_ROWS} --shards {{shards1}} --mode neighbor --fanout 3,2 --batch-size 16"),
    Consumer("stored", f"{_ROWS} --shards {{shards1}} --mode neighbor --batch-size 16 --samples {{samples}}"),
    Consumer("link", f"{_PAIRS} --task link"),
    Consumer("link in batches", f"{_PAIRS} --task link --mode neighbor --fanout 3,2 --link-batch 30"),
    Consumer("rows", f"{_ROWS} --shards {{shards1}} --mode rows --model mlp --steps 0 --batch-size 16"),
    Consumer("vertex", f"{_ROWS} --shards {{shards1}} --mode subgraph --sampler vertex --batch-size 16 --presamples 3"),
    Consumer("edge", f"{_ROWS} --shards {{shards1}} --mode subgraph --sampler edge --batch-size 16"),
    Consumer("walk", f"{_ROWS} --shards {{shards1}} --mode subgraph --sampler walk --batch-size 16"),
    Consumer("frontier", f"{_ROWS} --shards {{shards1}} --mode subgraph --sampler frontier --batch-size 16"),
    Consumer("cluster", f"{_ROWS} --shards {{shards1}} --mode subgraph --sampler cluster --cluster-parts 2"),
    Consumer("resume", "train {dataset}/again --epochs 5"),
    Consumer("result", "train {dataset}/old"),
    Consumer("export predictions", "export {dataset}/old predictions --out {out}/a.csv"),
    Consumer("export scores", "export {dataset}/old scores --out {out}/a.npz"),
    Consumer("export embeddings", "export {dataset}/old embeddings --out {out}/a.npy"),
    Consumer("export metrics", "export {dataset}/old metrics --out {out}/a.csv"),
    Consumer("export edges", "export {dataset} edges --out {out}/a.csv --graph {graph}"),
    Consumer("export features", "export {dataset} features --out {out}/a.npy"),
    Consumer("export labels", "export {dataset} labels --out {out}/a.csv"),
    Consumer("export partition", "export {dataset} partition --parts 2 --out {out}/a.csv"),
    Consumer("export pairs", "export {dataset} pairs --links {links} --out {out}/a.csv"),
    Consumer("predict", "predict {dataset}/old --checkpoint last --out {out}/a.npz"),
    Consumer("predict best", "predict {dataset}/old --checkpoint best --embeddings --out {out}/a.csv"),
    Consumer("predict shards", "predict {dataset}/old --checkpoint last --embeddings --out {out}/a.npy"),
    Consumer("smooth", "predict {dataset}/old --checkpoint last --smooth correct --out {out}/a.csv"),
    Consumer("partition", "partition {dataset} --parts 3 --method block --graph {graph} --workers 0"),
    Consumer(
        "partition by size",
        "partition {dataset} --parts 3 --method multilevel --preset flat --graph {graph} --workers 0",
    ),
    Consumer("shard", "shard {dataset} --parts 2 --reorder degree --workers 0"),
    Consumer("shard grid", "shard {dataset} --grid 3x2 --permutation none --graph {graph} --workers 0"),
    Consumer("shard parts", "shard {dataset} --grid 2x2 --permutation partition --parts 2 --graph {graph} --workers 0"),
    Consumer("sample", "sample {dataset} --fanout 2,2 --batch-size 16 --epochs 1 --seed 7 --graph {graph} --workers 0"),
    Consumer("links", "links {dataset} random --valid 0.1 --seed 7 --workers 0"),
    Consumer("propagate", f"{_PROPAGATE} --steps 2"),
    Consumer("propagate from disk", f"{_PROPAGATE} --steps 1 --ppr 0.2 --of label --adjacency disk"),
    # These show what is damaged, and times: only the way in which they end is looked at.
    Consumer("lineage", "catalog lineage {dataset}", compared=False),
    Consumer("report", "report {dataset}/old --out {out}/report", compared=False),
    Consumer("archive", "catalog export {dataset} {out}/a.tar"),
    Consumer("push", "catalog push {dataset} {out}/pushed"),
)
_OWN_MODEL = "--model support.typed_modules:Averages"
_TYPES = f"{_ROWS} --mode neighbor --reverse {_OWN_MODEL}"
#: Consumers of a graph with types, whose persons have labels, and whose relation ``knows`` leads to cities.
TYPED_CONSUMERS: tuple[Consumer, ...] = (
    Consumer("types", f"{_TYPES} --of-type person --fanout 3,2 --batch-size 16"),
    Consumer("types stored", f"{_TYPES} --of-type person --samples {{samples}}"),
    Consumer("pairs", f"{_TYPES} --task link --relation knows --links {{links}} --output-dim 4 --fanout 3,2"),
    Consumer("predict types", f"predict {{dataset}}/old {_OWN_MODEL} --out {{out}}/a.csv"),
    Consumer("export relation", "export {dataset} edges --graph {graph} --relation knows --out {out}/a.csv"),
    Consumer("export pairs of a relation", "export {dataset} pairs --links {links} --out {out}/a.csv"),
    Consumer("partition types", "partition {dataset} --parts 3 --method block --reverse --graph {graph} --workers 0"),
    Consumer("shard types", "shard {dataset} --parts 2 --workers 0"),
    Consumer("shard types into a grid", "shard {dataset} --grid 3x2 --graph {graph} --workers 0"),
    Consumer("sample types", "sample {dataset} --of-type person --fanout 2,2 --graph {graph} --workers 0"),
    Consumer("links of a relation", "links {dataset} random --relation knows --seed 7 --graph {graph} --workers 0"),
    Consumer("hard negatives", "links {dataset} hard --links {links} --negatives 4 --workers 0"),
    Consumer("lineage of types", "catalog lineage {dataset}", compared=False),
    Consumer("archive of types", "catalog export {dataset} {out}/a.tar"),
)
VERIFY = Consumer("verify", "catalog verify {dataset}")


@dataclass(frozen=True)
class Answer:
    """What a consumer gave.

    Attributes:
        facts: what it printed and made, without what depends on time and place.
        opened: files of the catalog that its process opened.
    """

    command: str
    code: int
    complaint: str
    log: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    opened: frozenset[str] = frozenset()

    def judge(self, expected: Answer) -> str:
        """``RIGHT``, ``REFUSED``, ``WRONG``, or what is wrong with the way in which the command ended."""
        if self.complaint:
            return self.complaint
        if self.code:
            return REFUSED
        return RIGHT if self.facts == expected.facts and not expected.code else WRONG


def ask(consumer: Consumer, catalog: Path, dataset: str, folder: Path, keys: Mapping[str, str]) -> Answer:
    """Run a consumer in a process of its own.

    Args:
        folder: for what it prints and writes.
        keys: what stands for the keys of artifacts in its words.
    """
    out, opened = folder / "out", folder / "opened.txt"
    for path in (out, opened):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    out.mkdir(parents=True)
    before = _digests(catalog, dataset)
    words = consumer.words.replace("/asked", f"/{consumer.name.replace(' ', '-')}")
    words = words.format(dataset=dataset, out=out, **keys)
    command = Command(folder, catalog, [*words.split(), "--json"], opened=opened)
    try:
        code, complaint = command.finish(_LONGEST_SECONDS), command.complaint()
    except TimeoutError:
        code, complaint = 1, "hung"
    facts: dict[str, Any] = {}
    if code == 0 and consumer.compared:
        made = {name: digest for name, digest in _digests(catalog, dataset).items() if before.get(name) != digest}
        files = {path.name: _content(path, keys) for path in sorted(out.iterdir())}
        facts = {"printed": _stable(json.loads(command.output())), "made": made, "files": files}
    names = frozenset(opened.read_text().splitlines()) if opened.exists() else frozenset[str]()
    return Answer(str(command), code, complaint, command.log() + command.output(), facts, names)


def _content(path: Path, keys: Mapping[str, str]) -> Any:
    """A file's digest; of named arrays, all but times, which differ if a run was removed and trained again.

    Of an archive and of a pushed dataset, the digests of the files of the artifacts with these keys: the other files
    belong to what earlier commands made, and manifests state times.
    """
    if path.is_dir():
        files = json.loads((path / PUSHED_LIST).read_bytes())["files"]
        return {name: file_digest(path / OBJECTS / files[name][0]) for name in files if _is_of(name, keys)}
    if path.suffix == ".tar":
        with tarfile.open(path) as archive:
            return {name: _member_digest(archive, name) for name in archive.getnames() if _is_of(name, keys)}
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: arrays[name].tobytes() for name in arrays.files if "seconds" not in name}
    return file_digest(path)


def _is_of(name: str, keys: Mapping[str, str]) -> bool:
    """Whether a copied file, KIND/KEY/FILE, belongs to an artifact with one of these keys, and is not its manifest."""
    _, key, file = [*name.split("/", 2), "", ""][:3]
    return key in keys.values() and file not in {"", MANIFEST}


def _member_digest(archive: tarfile.TarFile, name: str) -> str:
    content = archive.extractfile(name)
    return hashlib.sha256(content.read() if content else b"").hexdigest()


def _stable(printed: Any) -> Any:
    """What a command printed, without entries that differ from one run to the next."""
    if isinstance(printed, dict):
        return {name: _stable(value) for name, value in printed.items() if not _VOLATILE.search(name)}
    return [_stable(value) for value in printed] if isinstance(printed, list) else printed


def _digests(catalog: Path, dataset: str) -> dict[str, str]:
    """Digests of the complete artifacts that can be read."""
    found: dict[str, str] = {}
    # What is damaged on purpose cannot always be read; the commands are what is judged.
    with suppress(GnnloomError, OSError):
        stored = Catalog(catalog)[dataset]
        for info in stored.artifacts():
            with suppress(GnnloomError, OSError):
                found[f"{info.kind}/{info.key}"] = stored.find(info.kind, info.key).digest
    return found
