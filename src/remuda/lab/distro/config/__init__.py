"""The settings of a host: configuration files, variables and arguments merged as k3s merges them, and their meaning.

:mod:`.arguments` parses them, :mod:`.settings` is the value that all others use, with the paths below the data directory. These
modules write nothing. Not here: the settings of simulated nodes (`..nodes.config`). Read :mod:`.settings` first.
"""
