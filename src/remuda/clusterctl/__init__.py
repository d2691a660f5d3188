"""clusterctl's view of this program: the providers that it is, and where clusterctl finds them.

:mod:`.providers` names Cluster API's core and our three providers; :mod:`.inventory` keeps clusterctl's inventory of them,
:mod:`.repository` has the files that clusterctl reads about them, with cluster templates.
Not here: the kinds themselves (`api`), what providers do (`capi`, `provisioning`, `machines`). Read :mod:`.providers` first.
"""
