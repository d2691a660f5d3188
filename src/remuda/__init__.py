"""Remuda: declarative Kubernetes cluster provisioning and management.

The rooms below and the order of their imports are in docs/architecture.md. Not here: the page's source (`page/` of the
repository). Read :mod:`remuda.app.controllers` first: the table of all controllers.
"""

__version__ = "0.1.0"
