"""Identities in a cluster: authorities (on disk and sealed in etcd), certificates of a host and their rotation, join tokens.

Names and paths are k3s'. Not here: how a server gets its authorities (`..server_identity`), node passwords and the rotation of
encryption keys (`..cluster`). Read :mod:`.authorities` first.
"""
