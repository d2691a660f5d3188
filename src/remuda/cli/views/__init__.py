"""Views of clusters on the command line: `remuda cluster`, `remuda machine` and `remuda explain`.

:mod:`..remote.clusters` reads the server's state into a `ClusterView`. The rest is pure: :mod:`.cluster_tree` draws a cluster and
keeps the picture up to date, :mod:`.chain_tree` draws what it waits for. :mod:`.output` prints tables, JSON and YAML. Not here:
requests to the server (`..remote`), the words for states and waits (:mod:`remuda.gateway.explain`). Read :mod:`.cluster_tree`
first.
"""
