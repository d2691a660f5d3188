"""The pages say what the program does: every documented line parses, every option and exit code is documented."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from remuda.cli.command_tree import COMMANDS, cli
from remuda.cli.exit_codes import Code

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "cli.md").read_text()
PAGES = "\n".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))
SHOWN = "\n".join(re.findall(r"^\$ (.*)$", PAGES, re.MULTILINE))
LINES = re.findall(r"(?m)(?:^|(?<=\())remuda (?:[a-z-]+)(?: [^\s)`\"]+)*", SHOWN)


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize("line", sorted(set(LINES)))
def test_every_documented_line_is_a_right_one(line: str) -> None:
    _, name, *arguments = shlex.split(line)
    found = command(name)
    context = found.make_context(name, arguments)
    if isinstance(found, click.Group):
        inner, verb, rest = found.resolve_command(context, [*context._protected_args, *context.args])
        assert inner is not None and verb is not None
        verb.make_context(inner, rest, parent=context)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_is_documented(name: str) -> None:
    assert f"remuda {name}" in PAGE
    for parameter in command(name).params:
        if isinstance(parameter, click.Option):
            assert any(f"`{option}" in PAGE or f" {option}" in PAGE for option in parameter.opts), parameter.opts


def test_every_exit_code_is_documented() -> None:
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)] == [int(code) for code in Code]
