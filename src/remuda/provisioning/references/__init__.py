"""The objects that a cluster's spec names, and the rights to them.

A name is not a right: a cluster may use an object if the user who wrote its name into the spec may read that object, and it is
still the same object. :mod:`.spec_references` lists the references from marks on the types; :mod:`.authors` records the author
of each, at admission (:mod:`..admission.references`); :mod:`.authorization` binds a reference to the uid of its object, and
decides at each use. Not here: objects that pools refer to (`..graph.referenced_objects`). Read :mod:`.authorization` first.
"""

from .authorization import Access, Named, References
from .authors import ACCEPT, AUTHORS
from .spec_references import SpecReference, references_in, references_of

__all__ = ["ACCEPT", "AUTHORS", "Access", "Named", "References", "SpecReference", "references_in", "references_of"]
