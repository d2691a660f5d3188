"""Hosts as nodes of a cluster: registration, custom machines, node lookup, drains.

Controllers: `unmanaged`, `custommachine`, `awaitedhost`, `machinenodelookup`, `machinedrain`, `worker_label`.
`host_registration` and `host_identity` decide which host becomes which machine; the gateway has the HTTP side.
Not here: tokens and Secrets of a machine (`bootstrap`).
Read :mod:`.host_registration` first.
"""
