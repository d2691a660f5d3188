"""The MachineDeployment controller: rollout, scaling and status summary.

`rollout_plan` and `desired_machinesets` decide, `rollout_execution` acts.
Not here: single machines (`..machineset`). Read :mod:`.controller` first.
"""

from .controller import MachineDeployments

__all__ = ["MachineDeployments"]
