"""Discovery documents and OpenAPI v3: descriptions of the served resources, for clients.

`documents` is both forms of discovery, `openapi` one document per group and version, `openapi_schemas` operations and CRDs'
schemas, and our words for kubectl explain.
Not here: the served resources (`registry/`), the paths (`http/nonresource_paths`). Begin with `documents`.
"""
