"""Distributions and their versions: K3s, RKE2 and our own.

`distributions` says in what they differ, `catalog` which arguments and features each version has (releases.json).
`release_data` is the controller that loads data in place of ours.
Not here: which version a cluster may change to (`admission.version_changes`).
Read :mod:`.distributions` first.
"""
