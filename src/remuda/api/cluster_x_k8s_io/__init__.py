"""Cluster API's core group: the names of its kinds (:mod:`.names`); the types are read only when definitions are generated."""

from .names import (
    API_VERSION,
    CLUSTERS,
    GROUP,
    MACHINE_DEPLOYMENTS,
    MACHINE_DRAIN_RULES,
    MACHINE_HEALTH_CHECKS,
    MACHINE_SETS,
    MACHINES,
    OLD_API_VERSION,
    OLD_VERSION,
    VERSION,
)

__all__ = [
    "API_VERSION",
    "CLUSTERS",
    "GROUP",
    "MACHINES",
    "MACHINE_DEPLOYMENTS",
    "MACHINE_DRAIN_RULES",
    "MACHINE_HEALTH_CHECKS",
    "MACHINE_SETS",
    "OLD_API_VERSION",
    "OLD_VERSION",
    "VERSION",
]
