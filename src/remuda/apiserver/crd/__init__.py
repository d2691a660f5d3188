"""CustomResourceDefinitions: their validation, the resources that they define, and the strategy of their objects.

`definition_strategy` is the kind CustomResourceDefinition itself, `custom_resources` registers their resources,
`custom_resource_strategy` checks their objects; `conversion` converts between versions.
CEL and the schema compiler take a fifth of a server's start to load, so modules that every server loads (these,
:mod:`.conditions` and :mod:`..discovery.openapi_schemas`) import them late, with the first definition or match condition.
Not here: schemas (`schema/`), CEL (`cel/`), definitions of our own kinds (`api/`). Begin with `custom_resources`.
"""
