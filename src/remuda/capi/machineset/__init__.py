"""The MachineSet controller: creation, adoption, deletion and in-place update of a set's machines.

`preflight`, `deletion_order`, `desired_machines` and `remediation` decide, `creation` and `machine_deletion` act.
Not here: one machine's life (`..machine`). Read :mod:`.controller` first.
"""

from .controller import MachineSets

__all__ = ["MachineSets"]
