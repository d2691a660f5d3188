"""The HTTPS gateway: every request to a management server passes through it.

Folders, of which each imports only those after it: `agents` (cluster agents and their tunnels), `proxy` (requests to downstream
clusters and to a foreign management API), `explain` (what clusters wait for, and what to do) and `rancher` (the façade for
Rancher's clients), `registration` (of clusters and hosts), `auth` (users, tokens, sessions), `server` (parts of one request:
routing, headers, audit). :mod:`.gateway` puts them together, :mod:`.handler` takes one request through them,
:mod:`.provisioning_port` serves the provisioning controllers. Not here: the Kubernetes API itself (`apiserver`), which
controllers run (`app`), the tunnel's protocol (`tunnel`). Read :mod:`.gateway` first, then :mod:`.handler`.
"""
