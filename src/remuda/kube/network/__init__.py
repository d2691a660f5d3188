"""Connections: the policy for addresses that tenants name, TLS settings, errors for unreadable requests.

`outbound` is the policy, `outbound_http` applies it to aiohttp, `host_fields` finds fields that name hosts.
Clients of a Kubernetes API, their proxies and credentials are `client/`; the listeners are `apiserver/http/` and `gateway/`.
Begin with `outbound`.
"""
