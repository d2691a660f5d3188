"""Users, roles, settings, and the clusters that are managed: management.cattle.io.

`users`, `roles`, `clusters`, `health`, `settings`; shared: `rancher_conditions`, `default_objects`, the ports in
`downstreams`, and `agent_objects` (names in a downstream cluster).
Not here: how requests authenticate and tunnels work (`gateway`, `tunnel`).
This module and `agent_objects` are in the cluster agent's image: no imports.
Read `roles`, then `clusters.management_cluster`.
"""
