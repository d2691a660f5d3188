"""`remuda version`: ours, and the server's if one answers. Asked with the standard library: it must be quick."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from remuda import __version__

from ..options.locations import data_dir_option
from ..views.output import JSON, YAML, Output, output_option

Obj = dict[str, Any]
ANSWER_SECONDS = 3.0


@click.command()
@click.option("--client", "client_only", is_flag=True, help="Only this program's version, without asking a server.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="The server's kubeconfig.")
@data_dir_option
@output_option(JSON, YAML)
def command(client_only: bool, kubeconfig: Path | None, data_dir: Path, output: Output) -> None:
    """Print the versions of this program and of the server.

    The server is that of --kubeconfig, else of $KUBECONFIG, else of the data directory, else of ~/.kube/config. One that
    does not answer is no failure.
    """
    from platform import machine, python_version, system

    ours: Obj = {"version": __version__, "python": python_version(), "platform": f"{system().lower()}/{machine()}"}
    found: Obj = {"clientVersion": ours}
    if not client_only:
        _add_server(found, _paths(kubeconfig, data_dir), explicit=kubeconfig is not None)
    if output.structured:
        output.value(found)
        return
    output.line(f"Client: remuda {ours['version']} (Python {ours['python']}, {ours['platform']})")
    if "serverVersion" in found:
        output.line(
            f"Server: Kubernetes {found['serverVersion'].get('gitVersion', 'of an unknown version')} at {found['server']}"
        )
    elif "serverError" in found:
        output.line(f"Server: {found['serverError']}")


def _paths(kubeconfig: Path | None, data_dir: Path) -> list[Path]:
    from remuda.client.kubeconfig import default_paths

    if kubeconfig is not None:
        return [kubeconfig]
    own = data_dir / "kubeconfig"
    if not os.environ.get("KUBECONFIG") and os.access(own, os.R_OK):
        return [own]
    return default_paths()


def _add_server(found: Obj, paths: list[Path], *, explicit: bool) -> None:
    from remuda.client.kubeconfig import ConfigError, load, select

    if not any(path.exists() for path in paths):
        if explicit:
            found["serverError"] = f"{paths[0]} does not exist"
        return
    try:
        target = select(load(paths))
    except ConfigError as error:
        found["serverError"] = str(error)
        return
    from remuda.client import oneshot

    try:
        found["serverVersion"] = oneshot.get(target, "/version", ANSWER_SECONDS)
        found["server"] = target.server
    except (oneshot.NoAnswer, ConfigError) as error:
        found["serverError"] = f"{target.server} can't be reached: {error}"
