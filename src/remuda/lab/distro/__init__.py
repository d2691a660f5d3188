"""The `remuda` distribution: what a host runs that was told to be a server or a node.

`config` (settings), `pki` (authorities, tokens), `etcd`, `cluster` (Kubernetes API, supervisor, addons), `nodes`
(simulated kubelets and scheduler).
Its command line is `cli.programs.distro`, its controllers `app.distribution_controllers`.
Read :mod:`.server`, then :mod:`.agent`.
"""
