"""`remuda completion`: the script that teaches a shell our commands. kubectl, which has its own, asks for each word instead."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  source <(remuda completion bash)
    zsh:   source <(remuda completion zsh)
    fish:  remuda completion fish | source
    """
    from click.shell_completion import get_completion_class

    from .command_tree import cli

    found = get_completion_class(shell)
    assert found is not None
    template = found(cli, {}, "remuda", "_REMUDA_COMPLETE")
    # Not .source(): for bash it starts a bash to look at its version, which need not be the one that will read this.
    click.echo(template.source_template % template.source_vars())


# What cobra's scripts understand by `:4`: there is nothing else, and no file either.
_NO_FILES = ":4"


def completed(words: list[str]) -> list[str]:
    """How a command line could go on, whose last word is unfinished; as kubectl's scripts want to be told it."""
    from click.shell_completion import ShellComplete

    from .command_tree import cli

    *before, last = words or [""]
    found = ShellComplete(cli, {}, "remuda", "_REMUDA_COMPLETE").get_completions(before, last)
    told = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in found if item.type == "plain"]
    return [*told, _NO_FILES]
