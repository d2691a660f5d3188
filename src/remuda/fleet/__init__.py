"""Fleet, as far as clusters need it: workspaces, which are namespaces that clusters are in (:mod:`.fleetworkspace`).

Fleet's own bundles and agents are not implemented.
"""
