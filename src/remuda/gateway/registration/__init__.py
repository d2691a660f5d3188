"""Registration of clusters and hosts: registration tokens, the import manifest, `/v3/connect/agent`, the install script and
agent downloads, progress lines of hosts, and the public endpoints (`/cacerts`) that agents need first.

Not here: tunnels (`..agents`), what provisioning gets from these parts (`..provisioning_port`), the planner (`provisioning`).
Read :mod:`.registration_tokens`, then :mod:`.node_registration` or :mod:`.import_manifest`.
"""
