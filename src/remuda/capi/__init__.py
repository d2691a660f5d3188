"""Cluster API's core: one module or package per controller, named as its kind; `docs/cluster-api.md` says what differs."""

from __future__ import annotations

# All of the core in one word, and its controllers by the names that upstream gives them.
CAPI = "capi"
CONTROLLERS = ("cluster", "machine", "machineset", "machinedeployment", "machinehealthcheck")
