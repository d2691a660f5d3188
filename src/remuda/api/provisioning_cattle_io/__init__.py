"""The group of clusters that are wanted: the names of its kinds (:mod:`.names`); the types are read only when definitions are."""

from .names import API_VERSION, CLUSTERS, GROUP, VERSION

__all__ = ["API_VERSION", "CLUSTERS", "GROUP", "VERSION"]
