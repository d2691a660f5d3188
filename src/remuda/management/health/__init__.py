"""How clusters are: whether their agent is there, whether their API is well, what they consist of; and what is left of them.

`following` keeps caches of each connected cluster's nodes and pods; `facts` and `machines` say what they mean, `judging` what
that means for the Cluster. `keeping` and `nodesync` are the controllers that write it, `removal` is the one that cleans up.
"""

from __future__ import annotations

from .assembly import CONTROLLERS, controllers
from .ports import Agents

__all__ = ["CONTROLLERS", "Agents", "controllers"]
