"""Views of clusters on the command line: `remuda cluster`, `remuda machine` and `remuda explain`.

:mod:`..remote.clusters` reads the server's state into a :class:`~.states.Sight`. The rest is pure: :mod:`.states`
judges, :mod:`.cluster_tree` draws, :mod:`.wait_chain` follows waits to their cause, :mod:`.wait_chain` says what to do about it.
:mod:`.cluster_tree` keeps a picture up to date. Not here: requests to the server (`..remote`).
Read :mod:`.states`, then :mod:`.states`.
"""
