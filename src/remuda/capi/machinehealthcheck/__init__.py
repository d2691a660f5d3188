"""The MachineHealthCheck controller: unhealthy machines are marked for remediation, within a budget.

`machine_health` decides, also on the budget; `controller` serves remediation by other controllers, too.
Not here: the replacement of the machine itself (`..machineset.remediation`). Read :mod:`.controller` first.
"""

from .controller import MachineHealthChecks

__all__ = ["MachineHealthChecks"]
