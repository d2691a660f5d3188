"""Identities in a cluster: authorities (on disk and sealed in etcd), certificates of a host and their rotation, join tokens, keys
of encryption at rest and their rotation.

Names and paths are k3s'. Not here: node passwords (`..cluster`). Read :mod:`.authorities`, then :mod:`.server_identity`.
"""
