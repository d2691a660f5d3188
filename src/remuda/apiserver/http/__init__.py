"""The HTTPS side: connections, path grammar, negotiation, bodies, answers, watch streams, and non-resource paths.

`handler` takes a request from first byte to answer; `nonresource_paths` are health, version, discovery, OpenAPI, metrics;
`rotation_paths` is /remuda/rotation.
Not here: verbs (`verbs/`), authentication and authorization (`auth/`), the gateway in front (`gateway/server/`).
Begin with `handler`.
"""
