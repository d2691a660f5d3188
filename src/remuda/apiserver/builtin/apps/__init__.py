"""The apps group: deployments, replica sets, stateful sets, daemon sets, and their recorded revisions.

Defaults, validation and columns only; the controllers are `kcm/workloads`. Begin with `deployment`.
"""
