"""One module per command, or per pair of opposite commands (backup and restore, login and logout, install and uninstall).

Commands that run until they are stopped are in `programs`.
Each has a click command; :mod:`remuda.cli.command_tree` lists them with their module.
Nothing heavy is imported at the top: `--help` must feel instant.
"""
