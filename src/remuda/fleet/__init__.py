"""Fleet, as far as clusters need it: workspaces, which are namespaces that clusters are in (:mod:`.fleetworkspace`)."""
