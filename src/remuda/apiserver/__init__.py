"""The embedded Kubernetes API server: everything from the TLS listener to the durable store.

A request: `http/` → `auth/` → `verbs/` → (`admission/`, `registry/`, `builtin/` or `crd/`, `apply/`) → `storage/`; `cache/`
and `watch/` tell of it.
`server` puts the parts together, `config` says what it is given, `startup` opens store and keys, `background` is what runs by
itself, `inprocess` is the Client.
It knows nothing of clusters and machines, and no controller: those are `kcm/` and the rooms above. Begin with `server`, then
`http/handler`.
"""
