"""Damages stored files, and runs the commands that read them: a wrong result without an error is a failure.

``make flips`` (``PYTHONPATH=tests python tests/support/flips.py --flips 1000``) prepares small datasets with every kind
of artifact and a run. Each case damages one file of a copy: a flipped bit, zeros, a cut end, or a chunk or an array of
the same layout from elsewhere in the dataset or from another one. ``catalog verify`` must find the damage, and a draw
of the consumers that read the file (:mod:`support.consumers`) must each end with the result of the undamaged dataset
or with one error. ``--only N`` with the same ``--seed`` repeats one case and shows all that the commands print.

Cases of kind ``sealed copy`` put wrong numbers into an uncompressed copy and make its checksums right again. Only
``catalog verify`` finds numbers that could be right, so another result is counted as *believed*; a crash is a failure.
Cases of kind ``sealed configuration`` change values of a run's configuration in the same way: names of models, losses,
metrics and decoders become names of code that lies ready, others become hostile or get out of range. None may be
imported.

The catalogs of failures are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gnnloom.storage import Catalog
from gnnloom.storage.disk.seal import CHECKSUM
from gnnloom.storage.format import arrays
from support.commands import Command, kept_if_bad, load_commands, say
from support.consumers import CONSUMERS, REFUSED, RIGHT, TYPED_CONSUMERS, VERIFY, WRONG, Answer, Consumer, ask
from support.resealing import change_values, seal_copy, wrong_numbers
from support.stored_files import damage_file, files_by_kind
from support.strangers import FORMS, NAMED, name_code, plant, ran

#: Kinds of cases with wrong values whose checksums are right, and the answer with exit code 0 to them.
SEALED_COPY, SEALED_CONFIGURATION, BELIEVED = "sealed copy", "sealed configuration", "believed"
#: Share of the changed configurations that name code, which lies in the current folder or in an installed package.
_NAMING, _CODE = 0.4, (FORMS[0], FORMS[2])
#: Address space of commands whose numbers may be huge, in bytes.
_MOST_MEMORY = 8 << 30
#: Bytes of a chunk, so that tiny arrays have several.
CHUNK_BYTES = 200
#: Consumers that are asked about one damage, at most.
MOST_ASKED = 5
#: Commands that make each dataset.
_SBM = "sbm --vertices 60 --edges 300 --classes 3 --dim 4"
_PREPARED: Mapping[str, tuple[str, ...]] = {
    "web": (f"generate web {_SBM} --seed 1",),
    # The same layout with other contents.
    "twin": (f"generate twin {_SBM} --seed 2",),
    # Directed, with weights and with names as ids.
    "way": (
        "ingest way {folder}/edges.csv --weights --ids compact",
        "features way random --dim 4 --classes 3",
    ),
}
#: A dataset with types, its stages, and its run.
_TYPED = "kinds"
_TYPED_TABLES = (
    "--relation person,knows,city={folder}/knows.csv:from,to,fee as feature,kind as label",
    "--relation city,near,city={folder}/near.csv:from,to",
    "--vertices person={folder}/person.csv:id,age as feature,group as label,part as split",
    "--vertices city={folder}/city.csv:id,size as feature",
)
_TYPED_STAGES = (
    f"ingest kinds --merge keep {' '.join(_TYPED_TABLES)}",
    "partition {dataset} --parts 2 --method random --reverse",
    "shard {dataset} --parts 2",
    "shard {dataset} --grid 2x2 --permutation double",
    "sample {dataset} --of-type person --reverse --fanout 3,2 --batch-size 16 --epochs 2 --seed 3",
    "links {dataset} random --relation knows --valid 0.1 --disjoint 0.2 --seed 3",
)
_OWN_MODEL = "--model support.typed_modules:Averages --ranks 1 --threads 1"
_TYPED_TRAINED = (
    f"train {{dataset}}/old --mode neighbor --of-type person --reverse {_OWN_MODEL} --hidden 4 --epochs 2",
    "predict {dataset}/old --model support.typed_modules:Averages",
)
_STAGES = (
    "partition {dataset} --parts 1 --method random",
    "partition {dataset} --parts 2 --method random",
    "shard {dataset} --parts 1",
    "shard {dataset} --parts 2",
    "shard {dataset} --grid 2x2 --permutation double",
    "sample {dataset} --fanout 3,2 --batch-size 16 --epochs 2 --seed 3",
    # Adds another graph.
    "links {dataset} random --valid 0.1 --disjoint 0.3 --seed 3",
    "links {dataset} file --valid {folder}/{dataset}1.csv --test {folder}/{dataset}2.csv --keep-edges --allow-overlap",
)
_TRAINED = (
    "train {dataset}/old --ranks 1 --hidden 4 --epochs 3 --threads 1 --checkpoint-every 1 --keep 3 --keep-best auto",
    "predict {dataset}/old --embeddings",
    "train {dataset}/again --ranks 1 --hidden 4 --epochs 3 --threads 1 --checkpoint-every 1 --shards {shards1}",
    "propagate {dataset} --ranks 1 --threads 1 --steps 2 --normalization mean --shards {shards1}",
)


#: What ``--small`` makes and asks.
_FEW_STAGES = (_STAGES[0], _STAGES[2])
_FEW_CONSUMERS = {
    "full",
    "neighbor",
    "resume",
    "predict",
    "export features",
    "shard grid",
    "archive",
    "push",
    VERIFY.name,
}


@dataclass
class Flips:
    """Prepared datasets, the answers of all consumers before any damage, and files by kind."""

    folder: Path
    keys: dict[str, dict[str, str]] = field(default_factory=dict)
    expected: dict[tuple[str, str], Answer] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)
    consumers: tuple[Consumer, ...] = (*CONSUMERS, *TYPED_CONSUMERS, VERIFY)

    @property
    def prepared(self) -> Path:
        """The catalog that is copied for every case."""
        return self.folder / "prepared"

    def prepare(self, datasets: Sequence[str] = (*_PREPARED, _TYPED), stages: Sequence[str] = _STAGES) -> None:
        """Make the datasets, and ask all consumers about those that are damaged later."""
        _write_edges(self.folder / "edges.csv")
        _write_typed_tables(self.folder)
        for dataset in datasets:
            _write_pairs(self.folder, dataset)
        for dataset in datasets:
            is_typed = dataset == _TYPED
            for stage in _TYPED_STAGES if is_typed else (*_PREPARED[dataset], *stages):
                self._run(f"{stage} --workers 0", dataset)
            self.keys[dataset] = _keys(self.prepared, dataset)
            for stage in _TYPED_TRAINED if is_typed else _TRAINED:
                self._run(stage, dataset)
        asked = [name for name in datasets if name != "twin"]
        # Modes that map copies leave them.
        for dataset in asked:
            for consumer in self._consumers_of(dataset):
                if consumer.name in {"neighbor", "vertex", "frontier"}:
                    self._run(consumer.words.replace("/asked", "/mapping"), dataset)
                    self._run("catalog rm {dataset} --artifact runs/mapping", dataset)
        self.files = files_by_kind(self.prepared, asked)
        self.files[SEALED_COPY] = [
            file
            for file in self.files["mapped"]
            if file.endswith(".npy") and np.load(self.prepared / file, mmap_mode="r").size
        ]
        self.files[SEALED_CONFIGURATION] = [
            file for files in self.files.values() for file in files if file.endswith("/config.json")
        ]
        whole = self.folder / "whole"
        shutil.copytree(self.prepared, whole)
        for dataset in asked:
            for consumer in self._consumers_of(dataset):
                answer = ask(consumer, whole, dataset, self.folder, self.keys[dataset])
                # Some models refuse weights.
                if answer.complaint or (answer.code and dataset != "way"):
                    sys.exit(f"{answer.command} ended with {answer.code} {answer.complaint}\n{answer.log}")
                if not answer.code:
                    self.expected[dataset, consumer.name] = answer
        shutil.rmtree(whole)

    def _consumers_of(self, dataset: str) -> list[Consumer]:
        """The consumers of a dataset with types, or of others."""
        known = (*(TYPED_CONSUMERS if dataset == _TYPED else CONSUMERS), VERIFY)
        return [consumer for consumer in self.consumers if consumer in known]

    def _run(self, stage: str, dataset: str) -> None:
        known = {"dataset": dataset, "folder": self.folder, **self.keys.get(dataset, {})}
        # A role stands after blanks, within a word.
        words = [word.replace("_as_", " as ").format(**known) for word in stage.replace(" as ", "_as_").split()]
        command = Command(self.folder, self.prepared, words)
        if command.finish():
            sys.exit(f"ended with {command.code}: {command}\n{command.log()}")

    def case(self, seed: int, number: int, folder: Path) -> dict[str, Any]:
        """Damage one file of a copy, and ask its consumers; returns what happened, as JSON."""
        chosen = random.Random(f"{seed} {number}")
        kind = chosen.choice(sorted(self.files))
        file = chosen.choice(self.files[kind])
        catalog, dataset = folder / "catalog", file.split("/")[0]
        shutil.copytree(self.prepared / dataset, catalog / dataset)
        is_sealed = kind in {SEALED_COPY, SEALED_CONFIGURATION}
        if kind == SEALED_COPY:
            damage = wrong_numbers(chosen, catalog / file)
            seal_copy((catalog / file).parent)
        elif kind == SEALED_CONFIGURATION:
            damage = _change_configuration(chosen, catalog / file, folder)
        else:
            damage = damage_file(chosen, catalog, file, self.prepared)
        readers = self.readers(file)
        asked = sorted(chosen.sample(readers, min(len(readers), MOST_ASKED)), key=self.consumers.index)
        answers, said = {}, {}
        # First, because others may make a damaged copy anew.
        for consumer in (VERIFY, *asked):
            answer = ask(consumer, catalog, dataset, folder, self.keys[dataset])
            answers[consumer.name] = answer.judge(self.expected[dataset, consumer.name])
            said[consumer.name] = f"{answer.command}\nexit code {answer.code}\n{answer.log}"
            if is_sealed and consumer is not VERIFY and answers[consumer.name] == WRONG:
                answers[consumer.name] = BELIEVED
            if kind == SEALED_CONFIGURATION and (imported := ran(folder)):
                answers[consumer.name] = f"imported {imported}"
            if answers[consumer.name] == WRONG:
                said[consumer.name] += _differences(self.expected[dataset, consumer.name].facts, answer.facts)
        # A verification that finds nothing prints what it prints about an undamaged dataset, and more files to read.
        if answers[VERIFY.name] in {RIGHT, WRONG}:
            # Another configuration could be right as well.
            answers[VERIFY.name] = BELIEVED if kind == SEALED_CONFIGURATION else "unnoticed"
        return {"number": number, "kind": kind, "file": file, "damage": damage, "answers": answers, "said": said}

    def readers(self, file: str) -> list[Consumer]:
        """Consumers that read a file of the prepared catalog."""
        dataset, _, name = file.partition("/")
        return [
            consumer
            for consumer in self.consumers
            if consumer is not VERIFY
            and (dataset, consumer.name) in self.expected
            and (
                file in self.expected[dataset, consumer.name].opened
                or any(name.startswith(each.format(**self.keys[dataset])) for each in consumer.below)
            )
        ]


def _change_configuration(chosen: random.Random, path: Path, folder: Path) -> str:
    """Change values of a run's configuration, and put the code that they may name where this process finds it."""
    plant(folder, folder / "none", folder / "site")
    os.chdir(folder)
    sys.path[:0] = [str(folder), str(folder / "site")]
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    before = json.loads(path.read_bytes())
    if chosen.random() < _NAMING:
        option, form = chosen.choice(sorted({*NAMED["old"], *NAMED["pairs"]})), chosen.choice(_CODE)
        name_code(path.parent, {option: form})
    else:
        change_values(path, chosen)
    after = json.loads(path.read_bytes())
    names = [name for name in {**before, **after} if name != CHECKSUM and before.get(name) != after.get(name)]
    return str({name: after.get(name, "(gone)") for name in names})[:500]


def _keys(catalog: Path, dataset: str) -> dict[str, str]:
    stored = Catalog(catalog)[dataset]
    shards = {
        f"shards{info.parameters['parts']}": info.key
        for info in stored.artifacts("shards")
        if info.parameters.get("layout") == "row"
    }
    (graph,) = stored.ingested_graphs()
    samples = stored.artifacts("samples")
    # Those of the graph that the shards are made from; a graph with types has others only.
    all_links = stored.artifacts("links")
    links = [info for info in all_links if stored.links(info.key).message_graph == graph.key] or all_links
    others = {kind: infos[0].key for kind, infos in {"samples": samples, "links": links}.items() if infos}
    return {**shards, "graph": graph.key, **others}


def _write_pairs(folder: Path, dataset: str) -> None:
    """Write pairs of a dataset's vertices, edges or not, to validate and test with."""
    chosen = random.Random(6)
    names = _NAMES if dataset == "way" else [str(number) for number in range(50)]
    for split in (1, 2):
        lines = [",".join(chosen.sample(names, 2)) + "\n" for _ in range(40)]
        (folder / f"{dataset}{split}.csv").write_text("".join(dict.fromkeys(lines)))


def _write_typed_tables(folder: Path) -> None:
    """Write the tables of a graph with two types and two relations."""
    chosen, sizes = random.Random(7), {"person": 40, "city": 12}
    parts = ("train", "train", "valid", "test")
    people = [f"p{at},{at % 7},{at % 3},{parts[at % 4]}\n" for at in range(sizes["person"])]
    (folder / "person.csv").write_text("id,age,group,part\n" + "".join(people))
    (folder / "city.csv").write_text("id,size\n" + "".join(f"c{at},{at * 3}\n" for at in range(sizes["city"])))
    rows = [f"p{chosen.randrange(40)},c{chosen.randrange(12)},{chosen.random():.3f},k{at % 2}\n" for at in range(160)]
    (folder / "knows.csv").write_text("from,to,fee,kind\n" + "".join(rows))
    near = [f"c{chosen.randrange(12)},c{chosen.randrange(12)}\n" for _ in range(40)]
    (folder / "near.csv").write_text("from,to\n" + "".join(near))


#: Names of vertices.
_NAMES = [f"v{number:02}" for number in range(50)]


def _write_edges(path: Path) -> None:
    chosen, names = random.Random(5), _NAMES
    lines = [f"{chosen.choice(names)},{chosen.choice(names)},{chosen.uniform(0.5, 2.0):.3f}\n" for _ in range(250)]
    path.write_text("".join(lines))


def _differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    lines = [
        f"{name}: expected {expected[name]}, found {found[name]}" for name in found if found[name] != expected[name]
    ]
    return "\n".join(lines)[:3000]


def run_cases(flips: Flips, seed: int, numbers: Iterable[int], jobs: int) -> Iterator[dict[str, Any]]:
    """Run cases in processes of their own, some at a time; yields what happened."""
    running: dict[int, Path] = {}
    left = iter(numbers)
    while True:
        while len(running) < jobs and (number := next(left, None)) is not None:
            folder = flips.folder / f"case-{number}"
            folder.mkdir()
            process = os.fork()
            if process == 0:
                _run_case(flips, seed, number, folder)
            running[process] = folder
        if not running:
            return
        process, _ = os.wait()
        folder = running.pop(process)
        case = json.loads((folder / "case.json").read_text())
        if set(case["answers"].values()) <= {*_SOUND}:
            shutil.rmtree(folder)
        yield case


def _run_case(flips: Flips, seed: int, number: int, folder: Path) -> None:
    """Run a case, and end this process."""
    try:
        found = flips.case(seed, number, folder)
    except BaseException:  # noqa: BLE001 - nothing may reach the code that forked this process
        text = traceback.format_exc()
        found = {"number": number, "kind": "?", "file": "?", "damage": "?", "answers": {"case": text}, "said": {}}
    (folder / "case.json").write_text(json.dumps(found))
    os._exit(0)


def count(cases: Iterable[dict[str, Any]], limit: int = 10**9) -> tuple[Counter[str], list[str]]:
    """Count the answers, by kind of file as well; returns the counts and the failures."""
    counts: Counter[str] = Counter()
    failures = []
    for case in cases:
        counts.update({"cases": 1, f"cases of {case['kind']}": 1})
        for name, answer in case["answers"].items():
            known = answer if answer in _ANSWERS else "crash"
            counts.update({"commands": 1, known: 1, f"{known} of {case['kind']}": 1})
            if answer not in _SOUND:
                said = case["said"].get(name, answer)
                failures.append(f"case {case['number']}: {case['file']}, {case['damage']}: {name} is {answer}\n{said}")
    return counts, failures


def main() -> None:
    """Damage files, one per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="repeat one case, and show what its commands print")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kind", help="damage files of this kind only")
    parser.add_argument("--small", action="store_true", help="one dataset, with fewer artifacts and consumers")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="cases at a time")
    given = parser.parse_args()
    say(f"seed {given.seed}")
    arrays.CHUNK_BYTES = CHUNK_BYTES
    load_commands(ranks=not given.small)
    numbers = range(given.first, given.first + given.flips) if given.only is None else [given.only]
    with kept_if_bad("flips") as folder:
        flips = Flips(folder)
        if given.small:
            flips.consumers = tuple(each for each in flips.consumers if each.name in _FEW_CONSUMERS)
            flips.prepare(["web"], _FEW_STAGES)
        else:
            flips.prepare()
        # The draws of small sessions stay as they were.
        if given.kind or given.small:
            kinds = [given.kind] if given.kind else [kind for kind in flips.files if not kind.startswith("sealed")]
            flips.files = {kind: flips.files[kind] for kind in kinds}
        say(f"prepared {sum(map(len, flips.files.values()))} files of {len(flips.files)} kinds")
        cases, began = [], time.monotonic()
        for case in run_cases(flips, given.seed, numbers, given.jobs):
            cases.append({**case, "said": case["said"] if given.only is not None else _bad(case)})
            for failure in count([cases[-1]])[1]:
                say(failure[:6000])
            if len(cases) % 100 == 0:
                say(f"{len(cases)} cases in {time.monotonic() - began:.0f} s")
            if given.only is not None:
                say("\n".join([f"{case['file']}, {case['damage']}", *case["said"].values()]))
        _report(*count(cases), seed=given.seed)


def _bad(case: dict[str, Any]) -> dict[str, str]:
    return {name: said for name, said in case["said"].items() if case["answers"][name] not in _SOUND}


def _report(counts: Counter[str], failures: list[str], seed: int) -> None:
    kinds = sorted(name.removeprefix("cases of ") for name in counts if name.startswith("cases of "))
    for kind in kinds:
        parts = [f"{counts[f'{answer} of {kind}']} {answer}" for answer in _ANSWERS if counts[f"{answer} of {kind}"]]
        say(f"{kind}: {counts[f'cases of {kind}']} damages, {', '.join(parts)}")
    if failures:
        say(f"repeat a case with: PYTHONPATH=tests python tests/support/flips.py --seed {seed} --only N")
    for name in ("cases", "commands", *_ANSWERS):
        say(f"RESULT flips_{name.replace(' ', '_')} {counts[name]} {name.replace(' ', '-')}")
    if failures:
        sys.exit(1)


#: Answers that are no failure, and all that are counted.
_SOUND = (RIGHT, REFUSED, BELIEVED)
_ANSWERS = (*_SOUND, WRONG, "unnoticed", "traceback", "no error", "crash", "hung")

if __name__ == "__main__":
    main()
