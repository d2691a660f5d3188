"""The objects that a cluster's spec names, and who has a right to them.

A name is not a right: a cluster uses an object because the user who wrote its name into the spec may read that object, and it is
still the same object. :mod:`.naming` lists the references from marks on the types; :mod:`.authors` records who wrote each, at
admission (:mod:`.admission`); :mod:`.using` binds a reference to the uid of its object, and decides at each use.
"""

from .authors import ACCEPT, AUTHORS
from .naming import Reference, references_in, references_of
from .using import Access, Named, References

__all__ = ["ACCEPT", "AUTHORS", "Access", "Named", "Reference", "References", "references_in", "references_of"]
