"""The HTTPS side: connections, path grammar, negotiation, bodies, answers, watch streams, and paths that are about no resource.

`handler` takes a request from first byte to answer; `nonresource_paths` are health, version, discovery, OpenAPI, metrics;
`rotation_paths` is /remuda/rotation.
What a verb does is `verbs/`, who may is `auth/`, the gateway's door in front of this one is `gateway/server/`.
Begin with `handler`.
"""
