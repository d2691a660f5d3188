"""Discovery documents and OpenAPI v3: what clients read to learn what is served.

`documents` is both forms of discovery, `openapi` one document per group and version, `openapi_schemas` operations and CRDs'
schemas, `explain` our words for kubectl explain.
What is served is decided in `registry/`; the paths are in `http/nonresource_paths`. Begin with `documents`.
"""
