"""`remuda completion`: the script that teaches a shell our commands."""

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

    from .app import cli

    found = get_completion_class(shell)
    assert found is not None
    template = found(cli, {}, "remuda", "_REMUDA_COMPLETE")
    # Not .source(): for bash it starts a bash to look at its version, which need not be the one that will read this.
    click.echo(template.source_template % template.source_vars())
