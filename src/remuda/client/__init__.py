"""One async client of a Kubernetes API. Controllers know `interface.Client` and nothing else of a server.

`https` is the implementation for any Kubernetes, on `connection` (`kubeconfig`, `credentials`, `proxies`, `tls`, `responses`).
Not here: the in-process implementation (`apiserver/inprocess`), informers (`runtime/`).
Begin with `interface`.
"""

from .interface import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Client, WatchEvent

__all__ = ["APPLY_PATCH", "JSON_PATCH", "MERGE_PATCH", "STRATEGIC_MERGE_PATCH", "Client", "WatchEvent"]
