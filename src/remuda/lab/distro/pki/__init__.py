"""Identities in a cluster: authorities (on disk and sealed in etcd), certificates of a host, join tokens, keys of encryption
at rest and their rotation.

Not here: node passwords (`cluster`).
Names and paths are k3s'.
Read :mod:`.authorities`, then :mod:`.server_identity`.
"""
