"""Who may send plans to a cluster's machines: the names of its kinds (:mod:`.names`); the types are read only when definitions
are generated."""

from .names import API_VERSION, BEACONS, GROUP, VERSION

__all__ = ["API_VERSION", "BEACONS", "GROUP", "VERSION"]
