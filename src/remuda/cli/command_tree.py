"""The command tree. Singular nouns, then verbs; a few commands of one word for the server itself."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import click

from remuda import __version__


class CommandEntry(NamedTuple):
    """The module of a command, the line that `--help` shows without loading it, and the function's name there."""

    module: str
    summary: str
    function: str = "command"


COMMANDS = {
    "apply": CommandEntry("commands.plan", "Make a change that was planned, if its plan still holds.", "apply"),
    "backup": CommandEntry("commands.backup", "Back up a server's whole state into a sealed file."),
    "cluster": CommandEntry("commands.cluster", "List clusters, look at one, register hosts with it, and delete it."),
    "cluster-agent": CommandEntry("programs.cluster_agent", "Connect a cluster to its server."),
    "clusterctl": CommandEntry("commands.clusterctl", "Write the files that clusterctl needs to know of Remuda."),
    "kube-api-auth": CommandEntry("programs.kube_api_auth", "Check users' tokens for a cluster's API server."),
    "completion": CommandEntry("command_tree", "Print the completion script of a shell.", "completion"),
    "controllers": CommandEntry("programs.controllers", "Run the controllers on any Kubernetes."),
    "crds": CommandEntry("commands.manifests", "Print or install the definitions of Remuda's kinds.", "crds"),
    "demo": CommandEntry("demo.command", "Show what Remuda does, on this machine and within minutes."),
    "distro": CommandEntry("programs.distro", "Run a host of the remuda distribution."),
    "doctor": CommandEntry("commands.doctor", "Check whether a server can run well here."),
    "explain": CommandEntry("commands.cluster", "Show what a cluster waits for, since when, and what to do.", "explain"),
    "gateway": CommandEntry("programs.gateway", "Run the gateway in front of any Kubernetes."),
    "get": CommandEntry("commands.get", "Show objects of a kind, as they are or as they were."),
    "history": CommandEntry("commands.history", "Show what happened to an object: when, what, and by whom."),
    "host": CommandEntry("commands.host", "Create hosts on this machine, to try clusters on."),
    "install": CommandEntry("commands.install", "Install the server as a service of this machine."),
    "kubeconfig": CommandEntry("commands.kubeconfig", "Print or merge a kubeconfig."),
    "login": CommandEntry("commands.login", "Log in to a server."),
    "logout": CommandEntry("commands.login", "Log out, of the current login or another one.", "logout"),
    "machine": CommandEntry("commands.machine", "List machines, see how one was made, and delete it."),
    "manifests": CommandEntry("commands.manifests", "Print manifests that put Remuda onto another Kubernetes."),
    "plan": CommandEntry("commands.plan", "Show what a change would do to the machines of clusters."),
    "provision": CommandEntry("programs.provision", "Create or delete a machine (called by Jobs)."),
    "restore": CommandEntry("commands.backup", "Restore a server's state from a backup.", "restore"),
    "rotate": CommandEntry("commands.rotate", "Replace keys and certificates of a running server."),
    "serve": CommandEntry("programs.serve", "Run the server."),
    "snapshot": CommandEntry("commands.snapshot", "Take, list, import, check, restore and delete snapshots of clusters' etcd."),
    "ssh": CommandEntry("commands.machine", "Open a shell on a machine, or run a command there.", "ssh"),
    "support-bundle": CommandEntry("support_bundle.command", "Write diagnostic data into FILE.tar.gz, without secrets."),
    "token": CommandEntry("commands.token", "List, make and remove your tokens."),
    "uninstall": CommandEntry("commands.install", "Remove the service that `remuda install` made.", "uninstall"),
    "upgrade-check": CommandEntry("commands.upgrade_check", "Show which machines this version of Remuda would touch."),
    "user": CommandEntry("commands.user", "List, make and change users."),
    "version": CommandEntry("commands.version", "Print the versions of this program and of the server."),
    "versions": CommandEntry("commands.versions", "List the Kubernetes versions that a cluster can have."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported only when one of them is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        found = getattr(importlib.import_module(f"remuda.cli.{entry.module}"), entry.function)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in sorted(COMMANDS.items())])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            ctx.fail(f"there is no command {name!r}{_suggestion(name)}")
        return super().resolve_command(ctx, args)


def _suggestion(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, 1)
    return f", perhaps {close[0]!r} was meant" if close else ""


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "REMUDA", "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 conflict, 5 not allowed, 124 timeout, 130 interrupted.",
)
@click.version_option(__version__, prog_name="remuda", message="%(prog)s %(version)s", help="Print the version and exit.")
def cli() -> None:
    """Declarative Kubernetes clusters: a Kubernetes API on one machine, with nothing but Python."""


# --- completion ------------------------------------------------------------------------------------------------------------
#
# `remuda completion`: the script that teaches a shell our commands. kubectl, which has its own, asks for each word instead.


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  source <(remuda completion bash)
    zsh:   source <(remuda completion zsh)
    fish:  remuda completion fish | source
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    template = found(cli, {}, "remuda", "_REMUDA_COMPLETE")
    # Not .source(): for bash it starts a bash to look at its version, which need not be the one that will read this.
    click.echo(template.source_template % template.source_vars())


# For cobra's scripts `:4` means that there are no more completions, and no file names.
_NO_FILES = ":4"


def completed(words: list[str]) -> list[str]:
    """Completions of a command line whose last word is unfinished, in the form that kubectl's scripts expect."""
    from click.shell_completion import ShellComplete

    *before, last = words or [""]
    found = ShellComplete(cli, {}, "remuda", "_REMUDA_COMPLETE").get_completions(before, last)
    told = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in found if item.type == "plain"]
    return [*told, _NO_FILES]
