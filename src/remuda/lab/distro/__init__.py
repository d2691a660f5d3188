"""The `remuda` distribution: the programs of a host that is a server or a node of a cluster.

`config` (settings), `pki` (authorities, tokens), `etcd`, `cluster` (Kubernetes API, controllers, supervisor, addons), `nodes`
(simulated kubelets and scheduler); :mod:`.supervisor_client` and :mod:`.server_identity` let a host join,
:mod:`.cluster_reset` begins again with one server, from a snapshot.
Not here: its command line (`cli.programs.distro`), its installer (`images/installer`). Read :mod:`.server`, then :mod:`.agent`.
"""


class DistroError(Exception):
    """The message has the reason, and what to do about it."""


class InUse(DistroError):
    """Another server uses the same data."""


class PartEnded(DistroError):
    """A part has ended that should not have."""
