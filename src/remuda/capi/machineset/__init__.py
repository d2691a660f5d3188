"""The MachineSet controller: creation, adoption, deletion and in-place update of a set's machines.

`preflight`, `desired_machines` and `remediation` decide, `creation` and `machine_deletion` act.
Not here: one machine's lifecycle (`..machine`). Read :mod:`.controller` first.
"""

from .controller import MachineSets

__all__ = ["MachineSets"]
