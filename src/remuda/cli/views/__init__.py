"""Views of clusters on the command line: `remuda cluster`, `remuda machine` and `remuda explain`.

:mod:`..remote.clusters` reads the server's state into a :class:`~.cluster_snapshot.Sight`. The rest is pure: :mod:`.states`
judges, :mod:`.cluster_tree` draws, :mod:`.wait_chain` follows waits to their cause, :mod:`.wait_advice` says what to do about it.
:mod:`.screen` keeps a picture up to date. Not here: requests to the server (`..remote`).
Read :mod:`.cluster_snapshot`, then :mod:`.states`.
"""
