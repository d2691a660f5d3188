"""Who there is and what they may do, and the clusters there are: the controllers of `management.cattle.io`.

Rooms: `users`, `roles`, `clusters`, `health`, `clusterauth`, `settings`, `features`. What they need of a cluster behind a tunnel
they ask for through :mod:`.downstreams`, which the gateway fulfils.
"""

# What `--controllers` calls all of them together, and one by one.
ACCESS = "access"
CONTROLLERS: tuple[str, ...] = (
    "settings",
    "user",
    "token",
    "builtin-globalroles",
    "builtin-roletemplates",
    "globalrole",
    "globalrolebinding",
    "cluster-memberships",
    "cluster-access",
    "downstream-access",
    "user-bindings",
    "management-cluster",
    "clusterregistrationtoken",
    "cluster-health",
    "node-sync",
    "cluster-removal",
    "cluster-deploy",
    "cluster-auth",
    "provisioning-cluster",
    "cluster-management",
    "system-namespace",
    "local-cluster",
    "fleetworkspace",
    "fleetworkspace-default",
)
