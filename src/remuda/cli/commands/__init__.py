"""The commands, one module each; opposite commands (`backup` and `restore`, `login` and `logout`, `install` and `uninstall`) and
commands on the same objects (`machine` and `ssh`, `cluster` and `explain`, `manifests` and `crds`) share one.

Nothing heavy is imported at the top: `--help` must feel instant.
Not here: commands that run until they are stopped (`..programs`) or that have parts of their own (`..demo`,
`..support_bundle`), the list of all commands with their modules
(:mod:`remuda.cli.command_tree`). Read :mod:`.token` first, a small one.
"""
