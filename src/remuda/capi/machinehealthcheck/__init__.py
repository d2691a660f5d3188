"""The MachineHealthCheck controller: unhealthy machines are marked for remediation, within a budget.

`machine_health` decides, also on the budget; `controller` serves remediation by other controllers, too.
Replacement of the machine itself is `..machineset.remediation`. Read :mod:`.controller` first.
"""

from .controller import MachineHealthChecks

__all__ = ["MachineHealthChecks"]
