"""The HTTPS gateway: every request to a management server passes through it.

Folders: `server` (listener side: one request, routing, audit), `auth` (users, tokens, sessions), `registration`
(of clusters and hosts), `agents` (cluster agents and their tunnels), `proxy` (requests to downstream clusters
and to a foreign management API).
Not here: the Kubernetes API itself (`apiserver`), which controllers run (`app`), the tunnel's protocol (`tunnel`).
Read :mod:`.gateway` first: it lists all parts; then :mod:`.server.handler`.
"""
