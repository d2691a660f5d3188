"""clusterctl's view of this program: the providers that it is, and where clusterctl finds them.

:mod:`.providers` names Cluster API's core and our three providers; :mod:`.inventory` keeps clusterctl's inventory of them.
Not here: the kinds themselves (`api`), what providers do (`capi`, `provisioning`, `machines`). Read :mod:`.providers` first.
"""
