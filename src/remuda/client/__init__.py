"""One async client of a Kubernetes API, with two ways in: in-process (embedded) and HTTPS (any Kubernetes)."""

from .api import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Client, WatchEvent

__all__ = ["APPLY_PATCH", "JSON_PATCH", "MERGE_PATCH", "STRATEGIC_MERGE_PATCH", "Client", "WatchEvent"]
