"""`remuda versions`: the Kubernetes versions that a cluster can have."""

from __future__ import annotations

from pathlib import Path

import click

from ..remote.connection import remote_of
from ..remote.login_file import complete_names
from ..views.output import JSON, TABLE, YAML, Output, output_option


@click.command()
@click.option("--client", "client_only", is_flag=True, help="The versions built into this program, without asking a server.")
@click.option("--login", default="", metavar="NAME", shell_complete=complete_names, help="The login to use.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="The server's kubeconfig.")
@output_option(TABLE, JSON, YAML)
def command(client_only: bool, login: str, kubeconfig: Path | None, output: Output) -> None:
    """List the Kubernetes versions that a cluster can have.

    They are the values of spec.kubernetesVersion of which the server has release data. Others may exist: a version of K3s or RKE2
    that is newer than the data is accepted with a warning.
    """
    found: dict[str, list[str]]
    found = _built_in() if client_only else remote_of(kubeconfig, login).ask("GET", "/v1-remuda/versions")["versions"]
    if output.structured:
        output.value(found)
        return
    for name, listed in found.items():
        output.line(f"{name}:")
        for version in listed:
            output.line(f"  {version}")


def _built_in() -> dict[str, list[str]]:
    from remuda.provisioning.releases import catalog, distributions

    releases = catalog.built_in()
    return {each.name: list(releases.versions(each)) for each in distributions.ALL}
