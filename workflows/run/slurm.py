"""Writes Slurm batch scripts for a recipe, with the sizes from its sections."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gnnloom.storage.disk.files import user_path
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import shell_command
from gnnloom.workflows.recipe.bundled import find_recipe
from gnnloom.workflows.recipe.read import read_recipe
from gnnloom.workflows.recipe.recipe import Recipe
from gnnloom.workflows.recipe.request import RecipeRequest
from gnnloom.workflows.recipe.sections import SlurmSection

#: Folder of the script templates, with ``@NAMES@`` to fill in.
TEMPLATES = Path(__file__).parents[1] / "slurm"
#: Folder of shared parts of scripts: the file ``begin.sh`` replaces ``@BEGIN@``.
PARTS = TEMPLATES / "parts"
#: @NAME@ rather than $NAME, because the scripts use shell variables.
_NAME = re.compile(r"@([A-Z_]+)@")


@dataclass(frozen=True)
class Jobs:
    """Files that ``--emit slurm`` has written.

    Attributes:
        recipe: copy of the recipe, with all defaults and settings, that the jobs run.
        scripts: the scripts, sorted by name.
    """

    recipe: Path
    scripts: list[Path]


def write_jobs(request: RecipeRequest, folder: Path) -> Jobs:
    """Write scripts for the whole run as one job, for preparing and training as two jobs, and for an array of seeds.

    Raises:
        InputError: the recipe cannot be used, its jobs could not run, or ``folder`` cannot be created.
    """
    recipe = read_recipe(request.recipe, request.catalog, request.settings)
    # Refuse settings that are certain to fail when a job begins, which may be after days in the queue.
    if recipe.cluster.task_memory > recipe.slurm.rank_memory:
        raise InputError(
            f"{recipe.source_name}: [cluster] memory = {recipe.cluster.memory}, but a rank of the jobs gets [slurm]"
            f" memory = {recipe.slurm.memory}; lower the former or raise the latter"
        )
    # Limited to characters that may appear in names of jobs and files and in comments of a script.
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", find_recipe(request.recipe).stem)
    # A suffix other than the recipe's, which may be in the same folder.
    copy = folder.resolve() / f"{name}.jobs.toml"
    values = _values(recipe, name, copy)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{folder}: cannot create this folder because a file is in the way") from error
    # A copy for the jobs, so that the file may change while they wait in the queue.
    given = " ".join(["", *(shell_command("--set", setting) for setting in request.settings)])
    origin = f"{find_recipe(request.recipe).resolve()}{given}".replace("\n", " ")
    text = f"# The jobs in this folder run this copy of {origin}\n\n{recipe.anywhere().to_toml()}"
    copy.write_text(text, encoding="utf-8")
    scripts = []
    for template in sorted(TEMPLATES.glob("*.sh")):
        path = folder / template.name
        path.write_text(fill(template.read_text(encoding="utf-8"), values), encoding="utf-8")
        # Executable, so that submit.sh runs as the documentation shows it.
        path.chmod(0o755)
        scripts.append(path)
    return Jobs(copy, scripts)


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace every ``@NAME@`` of a template by its value."""
    return _NAME.sub(lambda name: values[name[1]], template)


def _values(recipe: Recipe, name: str, copy: Path) -> dict[str, str]:
    slurm, ranks = recipe.slurm, recipe.training.algorithm.ranks
    prepare_ranks = slurm.prepare_ranks or ranks
    values = {
        "RECIPE": name,
        "NAME": name,
        "DATASET": recipe.dataset.name,
        "ARGUMENTS": shlex.quote(str(copy)),
        # Absolute, because submit.sh submits the scripts from the folder that they are in.
        "FOLDER": shlex.quote(str(Path.cwd())),
        "JOBS": shlex.quote(str(copy.parent)),
        "CATALOG": shlex.quote(str(user_path(recipe.catalog).resolve())),
        "RANKS": str(ranks),
        # The last stage that workers run, and the first stage of the ranks.
        "PREPARED": "samples" if recipe.sampled is not None else "shards",
        "BEGINS": "propagated" if recipe.propagate.steps else "train",
        "NODES": str(_nodes(ranks, slurm.ranks_per_node)),
        "PREPARE_RANKS": str(prepare_ranks),
        "PREPARE_NODES": str(_nodes(prepare_ranks, slurm.ranks_per_node)),
        "CPUS": str(slurm.cpus_per_rank),
        "TIME": _one_word("time", slurm.time),
        "PREPARE_TIME": _one_word("prepare_time", slurm.prepare_time),
        "SEEDS": str(slurm.seeds),
        "LAST_SEED": str(slurm.seeds - 1),
        "MPI": _one_word("mpi", slurm.mpi),
        "REQUEUES": str(slurm.requeues),
        "SETUP": "\n".join(slurm.setup) or "# [slurm] setup: nothing",
        "OPTIONS": "\n".join(f"#SBATCH {option}" for option in _options(slurm)),
        "ARRAY_SETTINGS": _array_settings(recipe),
    }
    parts = {path.stem.upper(): fill(path.read_text(encoding="utf-8"), values).rstrip() for path in PARTS.glob("*.sh")}
    return {**values, **parts}


def _options(slurm: SlurmSection) -> list[str]:
    """Return the options of sbatch that all jobs have."""
    words = {
        "account": slurm.account,
        "partition": slurm.partition,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
        "mail-user": slurm.mail,
        "mail-type": slurm.mail_events if slurm.mail else None,
    }
    return [
        f"--ntasks-per-node={slurm.ranks_per_node}",
        f"--cpus-per-task={slurm.cpus_per_rank}",
        # Slurm's M is 2^20 bytes. Rounded down, so that a job never asks for more than the recipe allows.
        f"--mem-per-cpu={slurm.memory_per_cpu >> 20}M",
        # Five minutes before the time limit: enough for an epoch and a checkpoint.
        "--signal=USR1@300",
        "--requeue",
        # A restarted job continues its log.
        "--open-mode=append",
        *(f"--{key}={_one_word(key, value)}" for key, value in words.items() if value),
        *(["--exclusive"] if slurm.exclusive else []),
        *slurm.extra,
    ]


def _nodes(ranks: int, per_node: int) -> int:
    return -(-ranks // per_node)


def _array_settings(recipe: Recipe) -> str:
    """Return options that give each task of an array its own run name and output file, if the recipe names these."""
    settings = []
    if recipe.training.run.name is not None:
        settings.append(f'--set "train.run={recipe.training.run.name}-$SLURM_ARRAY_TASK_ID"')
    if recipe.predict is not None and recipe.predict.out is not None:
        path = Path(recipe.predict.out)
        # Everything is quoted except the task's number, which the shell inserts.
        before, after = shlex.quote(f"predict.out={path.with_suffix('')}-"), shlex.quote(path.suffix)
        settings.append(f'--set {before}"$SLURM_ARRAY_TASK_ID"{after}')
    return " ".join(settings)


def _one_word(key: str, value: str) -> str:
    # These values go into #SBATCH lines, which have no quoting.
    # A constraint may combine features: "[rack1*2&rack2*4]", "intel|amd".
    if not re.fullmatch(r"[\w.:,+/@&|*()\[\]!-]+", value):
        raise InputError(f"[slurm] {key} = {value!r}: expected one word")
    return value
