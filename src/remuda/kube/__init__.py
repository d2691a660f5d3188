"""Data and rules that every package shares, pure or nearly so: objects, errors, names, selectors, conditions, waits, clock.

Sub-folders: `encoding/` (JSON, YAML, patches, Go's texts), `network/` (the outbound policy, TLS), `authorization/` (users,
actions, RBAC). Not here: a server or a client of the API (`apiserver/`, `client/`). Nothing here imports another package. Begin
with `objects`, `errors` and `clock`.
"""
