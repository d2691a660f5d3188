"""The pages that are made of the program are what it says now: `make docs` writes them."""

from __future__ import annotations

import re

import click
import pytest
from scripts.reference import DOCS, PAGES

from remuda.cli.command_tree import cli


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "run `make docs`"


def test_every_command_has_its_place() -> None:
    def paths(command: click.Command, above: str) -> set[str]:
        context = click.Context(command)
        if not isinstance(command, click.Group):
            return {above}
        below = {name: command.get_command(context, name) for name in command.list_commands(context)}
        return {above}.union(*(paths(found, f"{above} {name}") for name, found in below.items() if found is not None))

    shown = set(re.findall(r"^##+ (remuda .*)$", (DOCS / "cli-reference.md").read_text(), re.MULTILINE))
    assert shown == paths(cli, "remuda") - {"remuda"}


def test_every_pool_field_is_told() -> None:
    page = (DOCS / "cluster-fields.md").read_text()
    told = page.split("## spec.rkeConfig.machinePools[]\n")[1].split("\n## ")[0]
    assert {"name", "quantity", "machineConfigRef", "workerRole", "taints"} <= set(re.findall(r"^\| `(\w+)`", told, re.MULTILINE))
