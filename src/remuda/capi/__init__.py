"""Cluster API's core: one module or package per controller, named as its kind; `docs/cluster-api.md` says what differs.

Shared: `controller_context` (client, caches, options), `contracts` and `external_objects` (providers' objects), `phases`,
`workload_clusters` (the port that `clustercache` implements); `admission` and `conversion` are pure.
Not here: the types (`api/cluster_x_k8s_io`), our own providers (`provisioning`, `machines`).
Read `controller_context`, then `machine.controller`.
"""
