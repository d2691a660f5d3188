"""MachineDeployments: rolled out, scaled and summed up. :mod:`.controller` is the way in; decisions are modules of their own."""

from .controller import MachineDeployments

__all__ = ["MachineDeployments"]
