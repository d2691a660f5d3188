"""Connections: the policy for addresses that tenants name, TLS settings, errors for unreadable requests.

`outbound` is the policy, and finds fields that name hosts; `outbound_http` applies it to aiohttp.
Not here: clients of a Kubernetes API, their proxies and credentials (`client/`), the listeners (`apiserver/http/`, `gateway/`).
Begin with `outbound`.
"""
