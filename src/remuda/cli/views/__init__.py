"""Views of clusters on the command line: `remuda cluster`, `remuda machine` and `remuda explain`.

:mod:`..remote.clusters` reads the server's state into a :class:`~.states.ClusterView`. The rest is pure: :mod:`.states` gives
each object its state in one word, :mod:`.cluster_tree` draws a cluster and keeps the picture up to date, :mod:`.waits` collects
waits,
:mod:`.wait_chain` follows them to their cause and says what to do. :mod:`.output` prints tables, JSON and YAML.
Not here: requests to the server (`..remote`). Read :mod:`.states` first.
"""
