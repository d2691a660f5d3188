"""The MachineHealthCheck controller (:mod:`.controller`)."""

from .controller import MachineHealthChecks

__all__ = ["MachineHealthChecks"]
