"""Slurm batch scripts for a recipe, with the sizes that its sections give."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from gnnloom.storage.errors import InputError
from gnnloom.workflows.recipe.recipe import Recipe, find_recipe
from gnnloom.workflows.recipe.request import Request

#: Folder of the script templates, with ``@NAMES@`` to fill in.
TEMPLATES = Path(__file__).parents[1] / "slurm"
#: @NAME@ rather than $NAME, because the scripts use shell variables.
_NAME = re.compile(r"@([A-Z_]+)@")


def write_scripts(request: Request, folder: Path) -> list[Path]:
    """Write scripts for the whole run as one job, for preparing and training as two, and for an array of seeds.

    Returns:
        The scripts, sorted by name.

    Raises:
        InputError: the recipe cannot be used, its jobs could not run, or ``folder`` cannot be created.
    """
    recipe = Recipe.read(request.recipe, request.catalog, request.settings)
    _check_jobs(recipe)
    values = _values(recipe, request)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{folder}: cannot create this folder because a file is in the way") from error
    written = []
    for template in sorted(TEMPLATES.glob("*.sh")):
        path = folder / template.name
        path.write_text(fill(template.read_text(encoding="utf-8"), values), encoding="utf-8")
        # So that submit.sh runs as the documentation shows it.
        path.chmod(0o755)
        written.append(path)
    return written


def _check_jobs(recipe: Recipe) -> None:
    """Refuse settings that are certain to fail when a job begins, which may be after days in the queue."""
    slurm, cluster = recipe.slurm, recipe.cluster
    if cluster.task_memory > slurm.rank_memory:
        raise InputError(
            f"{recipe.source_name}: [cluster] memory = {cluster.memory}, but a rank of the jobs gets [slurm] memory ="
            f" {slurm.memory}; lower the former or raise the latter"
        )
    nodes = _nodes(max(recipe.training.ranks, slurm.prepare_ranks or 1), slurm.ranks_per_node)
    # Dask's default is the loopback, which other nodes cannot reach.
    if nodes > 1 and cluster.interface is None:
        raise InputError(
            f"{recipe.source_name}: the jobs take {nodes} nodes: name the network interface between them in the recipe"
            " ([cluster] interface) or with --set cluster.interface=NAME, for example ib0"
        )


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace every ``@NAME@`` of a template by its value."""
    return _NAME.sub(lambda name: values[name[1]], template)


def _values(recipe: Recipe, request: Request) -> dict[str, str]:
    slurm, ranks = recipe.slurm, recipe.training.ranks
    prepare_ranks = slurm.prepare_ranks or ranks
    path = find_recipe(request.recipe)
    # Job names appear in log file names and in comments of the script.
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", path.stem)
    settings = [word for setting in request.settings for word in ("--set", setting)]
    accounting = {"account": slurm.account, "partition": slurm.partition}
    lines = [f"#SBATCH --{key}={_one_word(key, value)}" for key, value in accounting.items() if value]
    return {
        "RECIPE": name,
        "NAME": name,
        "ARGUMENTS": shlex.join([str(path.resolve()), *settings]),
        # Absolute, because submit.sh submits the scripts from the folder that they are in.
        "FOLDER": shlex.quote(str(Path.cwd())),
        "CATALOG": shlex.quote(str(recipe.catalog.expanduser().resolve())),
        "RANKS": str(ranks),
        "NODES": str(_nodes(ranks, slurm.ranks_per_node)),
        "PREPARE_RANKS": str(prepare_ranks),
        "PREPARE_NODES": str(_nodes(prepare_ranks, slurm.ranks_per_node)),
        "CPUS": str(slurm.cpus_per_rank),
        # Slurm's M is 2^20 bytes. Rounded down, so that a job never asks for more than the recipe allows.
        "MEMORY_PER_CPU": f"{slurm.memory_per_cpu >> 20}M",
        "TIME": _one_word("time", slurm.time),
        "PREPARE_TIME": _one_word("prepare_time", slurm.prepare_time),
        "SEEDS": str(slurm.seeds),
        "LAST_SEED": str(slurm.seeds - 1),
        "MPI": _one_word("mpi", slurm.mpi),
        "ACCOUNT": "\n".join(lines),
        "ARRAY_SETTINGS": _array_settings(recipe),
    }


def _nodes(ranks: int, per_node: int) -> int:
    return -(-ranks // per_node)


def _array_settings(recipe: Recipe) -> str:
    """Return options that give each task of an array its own run name and output file, if the recipe names these."""
    settings = []
    if recipe.training.run is not None:
        settings.append(f'--set "train.run={recipe.training.run}-$SLURM_ARRAY_TASK_ID"')
    if recipe.predict is not None and recipe.predict.out is not None:
        path = Path(recipe.predict.out)
        # Everything is quoted but the task's number, which the shell inserts.
        before, after = shlex.quote(f"predict.out={path.with_suffix('')}-"), shlex.quote(path.suffix)
        settings.append(f'--set {before}"$SLURM_ARRAY_TASK_ID"{after}')
    return " ".join(settings)


def _one_word(key: str, value: str) -> str:
    # These values go into #SBATCH lines, which have no quoting.
    if not re.fullmatch(r"[\w.:,+/@-]+", value):
        raise InputError(f"[slurm] {key} = {value!r}: expected one word")
    return value
