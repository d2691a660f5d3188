"""The MachineHealthCheck controller: unhealthy machines are marked for remediation, within a budget.

`machine_health` and `remediation_budget` decide; `external_remediation` serves remediation by other controllers.
Replacement of the machine itself is `..machineset.remediation`. Read :mod:`.controller` first.
"""

from .controller import MachineHealthChecks

__all__ = ["MachineHealthChecks"]
