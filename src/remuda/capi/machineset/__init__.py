"""MachineSets; :mod:`.controller` is where to begin."""

from .controller import MachineSets

__all__ = ["MachineSets"]
