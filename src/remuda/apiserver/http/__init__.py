"""The HTTPS side: connections, path grammar, negotiation, bodies, answers, watch streams, and non-resource paths.

`handler` takes a request from first byte to answer; `nonresource_paths` are health, version, discovery, OpenAPI, metrics;
`rotation_paths` is /remuda/rotation.
Verbs are in `verbs/`, authentication and authorization in `auth/`, the gateway's listener in front of it in `gateway/server/`.
Begin with `handler`.
"""
