"""Connections: which addresses the server may connect to for tenants, TLS settings, what is said of unreadable requests.

`outbound` is the policy, `outbound_http` applies it to aiohttp, `host_fields` finds fields that name hosts.
Clients of a Kubernetes API, their proxies and credentials are `client/`; the listeners are `apiserver/http/` and `gateway/`.
Begin with `outbound`.
"""
