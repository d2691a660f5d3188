"""The ClusterResourceSet controller: objects from Secrets and ConfigMaps are put into every selected cluster.

`resources` reads the objects and applies them, `bindings` has the record of what was applied; `controller` does the rest.
Not here: helm charts and other addons of providers. Read :mod:`.controller` first.
"""

from .controller import ClusterResourceSets

__all__ = ["ClusterResourceSets"]
