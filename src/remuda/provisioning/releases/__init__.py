"""Distributions and their versions: K3s, RKE2 and our own.

`distributions` has their differences, `catalog` the arguments and features of each version (releases.json).
`release_data` is the controller that loads data to replace ours.
Not here: allowed changes of a cluster's version (`admission.version_changes`).
Read :mod:`.distributions` first.
"""
