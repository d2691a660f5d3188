"""Built-in kinds: defaults, validation and columns, one module per API group; `core/`, `pods/`, `apps/`, `batch/` one per kind.

`strategies` is the table of all kinds, `registration` puts them into the registry, `checks` and `workloads` are shared by them.
Not here: schemas, JSON and protobuf of the same kinds (`scheme/`). To add a rule to a kind, open its module. Read `strategies`
first.
"""
