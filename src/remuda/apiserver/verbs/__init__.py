"""The verbs of the API, one module each, and subresources (`subresources`, `scale`, `pod_subresources`).

Every verb takes a `context.Api` (the services of a server) and a `context.Call` (one request) and is the same over HTTP and
in process.
Not here: decoding by path and headers (`http/`), the parts of each kind (its Strategy, `registry/strategy`).
Begin with `context`, then `create` and `update.guaranteed_update`.
"""
