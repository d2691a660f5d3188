"""`remuda doctor`: looks before a server has to find out. The checks are in :mod:`remuda.cli.commands.checks`."""

from __future__ import annotations

from pathlib import Path

import click

from ..options.locations import Listen, data_dir_option, listen_option
from ..views.output import JSON, TABLE, WIDE, YAML, Column, Output, output_option

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@data_dir_option
@listen_option
@output_option(TABLE, WIDE, JSON, YAML)
@click.pass_context
def command(ctx: click.Context, data_dir: Path, listen: Listen, output: Output) -> None:
    """Check whether a server can run well here.

    Each check is ok, a warning, or a failure with what to do about it. The exit code is 1 when one fails.
    """
    from remuda.kube.clock import SYSTEM_CLOCK

    from . import checks

    found = checks.run(checks.Subject(data_dir.absolute(), listen, SYSTEM_CLOCK))
    failed = any(result.status == "fail" for result in found)
    if output.structured:
        output.value({"ok": not failed, "checks": [result.document() for result in found]})
    else:
        rows = [(output.paint(result.status, _COLOURS[result.status]), result.name, result.told()) for result in found]
        output.table((Column("STATUS"), Column("CHECK"), Column("FOUND")), rows)
    if failed:
        ctx.exit(1)
