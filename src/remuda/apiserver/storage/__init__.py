"""Durable state: one interface (`store.Store`), engines `memory`, `sqlite/`, `etcd/`, and the layout of keys.

Values are bytes here. `watch_hub` and the transactions of `store` are shared by the engines.
Not here: encryption at rest (`keys/encryption`), the decoded bytes (`cache/entries`), coordination of several servers
(`replicas/`). Begin with `store`.
"""
