"""Keys and certificates: a server's own (`pki`), those shared by all servers of a state (`shared_keys`), encryption at rest,
and their rotation.

`key_agreement` checks at start that servers have the same keys; `rotation` exchanges
them while servers run, in the steps of `rotation_record`.
Not here: making and reading certificates as such (`kube.certificates`), the layout of keys in the store
(`storage/key_layout`). For users: docs/rotation.md.
Begin with `shared_keys`.
"""
