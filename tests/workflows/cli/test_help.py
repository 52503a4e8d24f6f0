"""Help fits a page, shows what the command line is about, and names every other option."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from gnnloom.storage.option import MOST_USED, Group
from gnnloom.storage.samplers.registry import SAMPLERS
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.models.registry import MODELS
from gnnloom.trainer.modes.registry import MODES
from gnnloom.trainer.tasks.registry import TASKS
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.cli.terminal.help import PAGE, DerivedOption, GroupedCommand

COLUMNS = 80
CONTEXT = click.Context(cli)
COMMANDS = [[name] for name in cli.list_commands(CONTEXT)]


def command(name: str) -> click.Command:
    found = cli.get_command(CONTEXT, name)
    assert found is not None
    return found


GROUPED = [name for (name,) in COMMANDS if isinstance(command(name), GroupedCommand)]


def shown(*arguments: str) -> str:
    done = CliRunner(env={"COLUMNS": str(COLUMNS)}).invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def num_lines(text: str) -> int:
    """Lines on a terminal, which breaks those that are longer than it is wide."""
    return sum(max(1, -(-len(line) // COLUMNS)) for line in text.rstrip("\n").split("\n"))


def sections(text: str) -> dict[str, str]:
    """The text below each heading."""
    found: dict[str, str] = {}
    heading = ""
    for line in text.splitlines():
        if line and not line.startswith(" "):
            heading = line.rstrip(":")
        found[heading] = found.get(heading, "") + line + "\n"
    return found


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_help_fits_a_page(arguments: list[str]) -> None:
    assert num_lines(shown(*arguments, "--help")) <= PAGE


CHOICES = [
    *({"mode": mode} for mode in MODES),
    *({"algorithm": algorithm} for algorithm in ALGORITHMS),
    *({"model": model} for model in MODELS),
    *({"task": task} for task in TASKS),
    *({"mode": "subgraph", "sampler": sampler} for sampler in SAMPLERS),
    {"mode": "subgraph", "model": "gat", "algorithm": "tensor3d", "schedule": "plateau"},
]


@pytest.mark.slow
def test_help_of_every_choice_of_a_training_fits_a_page_and_names_its_options() -> None:
    options = [each for each in command("train").params if isinstance(each, DerivedOption) and not each.hidden]
    defaults = {"mode": "full", "algorithm": "p2p", "model": "gcn", "sampler": "frontier", "schedule": "constant"}
    defaults["task"] = "auto"
    for chosen in CHOICES:
        text = shown("train", *(word for name, value in chosen.items() for word in (f"--{name}", value)), "--help")
        assert num_lines(text) <= PAGE, chosen
        words = set(text.replace(",", " ").split())
        values = defaults | chosen
        for option in options:
            applies = all(values[name] in allowed for name, allowed in option.declared.needs.items())
            assert (option.opts[0] in words) == applies, (chosen, option.name)


def test_help_explains_the_options_of_what_was_chosen_and_the_most_used_ones() -> None:
    found = sections(shown("train", "--mode", "neighbor", "--help"))
    assert all(name in found["Sampling"] for name in ("--fanout FAN-OUTS", "--samples TEXT", "--cache-memory SIZE"))
    usual = sections(shown("train", "--help"))
    names = ("ranks", "algorithm", "mode", "model", "hidden", "dropout", "epochs", "lr", "weight-decay", "run")
    assert [line.split()[0] for line in usual[MOST_USED].splitlines() if line.startswith("  --")] == [
        f"--{name}" for name in sorted(names, key=lambda name: usual[MOST_USED].index(f"  --{name} "))
    ]
    assert "Sampling" not in usual
    assert "--fanout" not in shown("train", "--help")


def test_help_of_a_generator_has_no_options_of_the_others() -> None:
    text = shown("generate", "web", "rmat", "--help")
    assert "--scale" in text
    assert "--homophily" not in text
    assert "of them for another model" in " ".join(text.split())


@pytest.mark.parametrize("name", GROUPED)
def test_all_of_the_help_explains_every_option_in_groups(name: str) -> None:
    found = sections(shown(name, "--help-all"))
    options = [each for each in command(name).params if isinstance(each, click.Option) and not each.hidden]
    for option in options:
        assert isinstance(option, DerivedOption)
        assert option.declared.group is not Group.OTHER
        assert f"  {option.opts[0]}" in found[option.declared.heading], option.name
    assert f"Explain all {len(options)} options." in found["Help"]


def test_every_command_with_many_options_has_groups() -> None:
    many = [name for (name,) in COMMANDS if len(command(name).params) > 10]
    assert set(many) <= set(GROUPED)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["partition", "web"], "Missing option '--parts'"),
        (["partition", "web", "--parts", "0"], "'--parts': 0: expected at least 1"),
        (["sample", "web", "--fanout", "3,0"], "'--fanout': 0: expected at least 1, or -1, such as 15,10,5"),
        (["shard", "web", "--grid", "4"], "'--grid': '4': expected 2 sizes with x between them, such as 4x4"),
        (["train", "web", "--presamples", "some"], "'--presamples': 'some': expected an integer, or auto"),
        (["shard", "web", "--memory", "2X"], "'--memory': '2X': expected a size such as 512M or 1G"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_option(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2
    assert said in done.output
