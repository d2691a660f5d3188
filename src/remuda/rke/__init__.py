"""The providers that make hosts into clusters, and the planner; :mod:`.assembly` puts them together."""

from __future__ import annotations

# What `--controllers` calls all of provisioning together, and one by one.
PROVISIONING = "provisioning"
CONTROLLERS: tuple[str, ...] = (
    "provisioningcluster",
    "provisioninglog",
    "secret",
    "podsecurity-templates",
    "rkecluster",
    "rkecontrolplane",
    "planner",
    "release-data",
    "rke-bootstrap",
    "bootstraptoken",
    "awaited-host",
    "unmanaged-machine",
    "custom-machine",
    "plansecret",
    "machine-node-lookup",
    "machine-drain",
    "machine-worker-label",
)
