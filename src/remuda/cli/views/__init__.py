"""Looking at clusters from the command line: `remuda cluster`, `remuda machine` and `remuda explain`.

:mod:`..remote.clusters` reads what the server has into a :class:`~.cluster_snapshot.Sight`. The rest is pure: :mod:`.states`
judges, :mod:`.cluster_tree` draws, :mod:`.wait_chain` follows what is waited for, :mod:`.wait_advice` says what to do about it.
:mod:`.screen` keeps a picture up to date.
"""
