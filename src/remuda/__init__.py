"""Remuda: declarative Kubernetes cluster provisioning and management."""

__version__ = "0.1.0"
