"""The Machine controller: each Machine from its references to its node, and its deletion with drain and volume detach.

`drain_plan`, `deletion_rules` and `status` decide; `noderef` and `node_sync` deal with the Node.
Not here: the creation of machines (`remuda.machines`, other providers). Read :mod:`.controller` first.
"""

from .controller import Machines

__all__ = ["Machines"]
