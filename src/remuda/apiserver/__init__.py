"""The embedded Kubernetes API server: everything from the TLS listener to the durable store.

A request: `http/` → `auth/` → `verbs/` → (`admission/`, `registry/`, `builtin/` or `crd/`, `apply/`) → `storage/`; `cache/`
and `watch/` report changes.
`server` puts the parts together (its `Config` lists the settings), `startup` opens store and keys, `background` what runs
by itself, `inprocess` is the Client.
Not here: clusters, machines and controllers (`kcm/` and the packages above). Begin with `server`, then `http/handler`.
"""
