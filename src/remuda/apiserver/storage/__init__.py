"""Durable state: one interface (`store.Store`), engines `memory`, `sqlite/`, `etcd/`, and the layout of keys.

Values are bytes here. Encryption at rest is `keys/encryption`, what the bytes mean is `cache/entries`, coordination of
several servers is `replicas/`.
`watch_hub` and `transaction` are shared by the engines. Begin with `store`.
"""
