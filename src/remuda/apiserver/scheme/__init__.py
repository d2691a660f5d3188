"""The types of built-in kinds: Go types, OpenAPI schemas, decoding of JSON and protobuf. Generated from Kubernetes into
`builtins.json`.

`builtin_types` answers questions about a kind, `codec` and `protobuf` decode bodies as Go would.
Not here: validation and defaults of kinds (`builtin/`), custom resources (`schema/`, `crd/`).
Begin with `builtin_types`.
"""
