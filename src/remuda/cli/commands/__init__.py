"""The commands, one module each; opposite commands (`backup` and `restore`, `login` and `logout`, `install` and `uninstall`) and
commands on the same objects (`machine` and `ssh`, `cluster` and `explain`, `manifests` and `crds`) share one.

Commands that run until they are stopped are in `..programs`. :mod:`remuda.cli.command_tree` lists all commands with their
modules. Nothing heavy is imported at the top: `--help` must feel instant. Read :mod:`.token` first, a small one.
"""
