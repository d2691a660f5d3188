"""The group of what a downstream cluster is told about its users: names of its kinds; the types are in :mod:`.v3`."""

from .names import API_VERSION, CLUSTER_AUTH_TOKENS, CLUSTER_USER_ATTRIBUTES, GROUP, VERSION

__all__ = ["API_VERSION", "CLUSTER_AUTH_TOKENS", "CLUSTER_USER_ATTRIBUTES", "GROUP", "VERSION"]
