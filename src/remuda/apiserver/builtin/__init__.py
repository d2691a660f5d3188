"""Built-in kinds: defaults, validation and columns, one module per API group; `core/`, `pods/`, `apps/`, `batch/` one per kind.

`registration` has the table of their strategies and registers the kinds, `checks` and `workloads` are shared by them.
`resource_quantities` reads ResourceLists, `claim_spec` checks the specs of volume claims; `internal_types` prints values as
kube-apiserver's internal Go structs do, for the few errors that show them.
Not here: schemas, JSON and protobuf of the same kinds (`scheme/`). To add a rule to a kind, open its module. Read `registration`
first.
"""
