"""Proxying of `/k8s/clusters/<id>/…` to downstream clusters through tunnels, impersonating the user; and to the
management API where that is a foreign Kubernetes (:mod:`.kubernetes_backend`, with partial lists).

HTTP/1.1 parsing, pools and upgrades are here too. Not here: routing (`..server`), authentication (`..auth`).
Read :mod:`.cluster_proxy`, then :mod:`.reverse_proxy` and :mod:`.impersonation`.
"""
