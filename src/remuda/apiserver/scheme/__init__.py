"""The types of built-in kinds: Go types, OpenAPI schemas, decoding of JSON and protobuf. Generated from Kubernetes into
`builtins.json`.

`builtin_types` answers questions about a kind, `codec` and `protobuf` decode bodies as Go would.
Validation and defaults of kinds are in `builtin/`; custom resources are `schema/` and `crd/`.
Begin with `builtin_types`.
"""
