"""`remuda provision`: what the Jobs of machine pools run. For programs; its words are rancher-machine's."""

from __future__ import annotations

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": ["--help"]}
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTION...] create|rm|power-on [WORD...]")
def command(words: tuple[str, ...]) -> int:
    """Create or delete a machine (called by Jobs).

    \b
    remuda provision --secret-namespace=NS --secret-name=NAME create --driver=D --custom-install-script=FILE MACHINE
    remuda provision --secret-namespace=NS --secret-name=NAME rm -y --update-config MACHINE
    remuda provision power-on
    """
    from remuda.machines.provisioner.program import main

    return main(words)
