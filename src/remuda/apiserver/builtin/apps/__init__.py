"""The apps group: deployments, replica sets, stateful sets, daemon sets, and their recorded revisions.

Defaults, validation and columns. Not here: the controllers (`kcm/workloads`). Begin with `deployment`.
"""
