"""The registry of served resources, their versions, and each kind's part in the generic verbs (its Strategy).

`resources` holds Registry, Resource and Version; `object_meta` the rules of every object's metadata; `strategy` the
Strategy and the building blocks of its printer columns.
Not here: the registration of built-in kinds (`builtin/registration`) and custom ones (`crd/custom_resources`).
Begin with `resources`, then `strategy`.
"""
