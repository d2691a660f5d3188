"""Cluster API's core: one module or package per controller, named as its kind; `docs/cluster-api.md` says what differs."""
