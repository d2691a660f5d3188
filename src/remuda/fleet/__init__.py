"""Fleet, as far as clusters need it: workspaces, which are namespaces that clusters are in (:mod:`.fleetworkspace`).

Not here: Fleet's bundles and agents, which are not implemented. Read :mod:`.fleetworkspace`, the only module.
"""
