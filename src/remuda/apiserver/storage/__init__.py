"""Durable state: one interface (`store.Store`), engines `memory`, `sqlite/`, `etcd/`, and the layout of keys.

Values are bytes here. Encryption at rest is `keys/encryption`, the decoded bytes are `cache/entries`, coordination of
several servers is `replicas/`.
`watch_hub` and the transactions of `store` are shared by the engines. Begin with `store`.
"""
