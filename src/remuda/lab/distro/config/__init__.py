"""The settings of a host: configuration files, variables and arguments merged as k3s merges them, and their meaning.

Nothing is read or written elsewhere by these modules.
:mod:`.arguments` parses, :mod:`.settings` is the value all others use, :mod:`.paths` the files below the data
directory.
Read :mod:`.settings` first.
"""
