"""The types of v1beta2, which is the stored version: one module per kind.

Types of several kinds are `..shared_types`, the older version is `..v1beta1`. Not here: how the kinds are served (`..crds`).
Read :mod:`.machine` first.
"""
