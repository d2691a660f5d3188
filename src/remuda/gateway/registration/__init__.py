"""Registration of clusters and hosts: registration tokens, the import manifest, `/v3/connect/agent`, the install script
and agent downloads, progress lines of hosts.

The port to provisioning is :mod:`.provisioning_port`. Not here: tunnels (`..agents`), the planner
(`provisioning`).
Read :mod:`.registration_tokens`, then :mod:`.node_registration` or :mod:`.import_manifest`.
"""
