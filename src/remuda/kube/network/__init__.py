"""Connections: the policy for addresses that tenants name, TLS settings, errors for unreadable requests.

`outbound` is the policy, and finds fields that name hosts; `outbound_http` applies it to aiohttp.
Clients of a Kubernetes API, their proxies and credentials are `client/`; the listeners are `apiserver/http/` and `gateway/`.
Begin with `outbound`.
"""
