"""The templates for pod security that clusters name: found, followed, and the two that there always are.

What becomes of one is :mod:`remuda.provisioning.graph.podsecurity`.
"""

from __future__ import annotations

from typing import Any

from remuda.access.default_objects import Standing
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.kube.objects import Key, dig, name_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import Informer, Manager, Watch

from .podsecurity import BUILT_IN, FIELD, KIND, template_of
from .referenced_objects import Missing

Obj = dict[str, Any]

_BY_TEMPLATE = "named pod security templates"


class PodSecurityTemplates:
    def __init__(self, manager: Manager, wanted: Informer) -> None:
        """`wanted` are the clusters."""
        self.cache = manager.informers.of(management.POD_SECURITY_TEMPLATES)
        self._wanted = wanted
        wanted.add_index(_BY_TEMPLATE, lambda each: filter(None, (template_of(each),)))

    def watch(self) -> Watch:
        return Watch(management.POD_SECURITY_TEMPLATES, self._users, _matters)

    def of(self, wanted: Obj) -> Obj | None:
        """The one that a cluster names; None if it names none that counts. Raises Missing."""
        name = template_of(wanted)
        found = self.cache.get("", name) if name else None
        if found is None and name:
            on = Ref(management.GROUP, KIND, "", name)
            subject = Ref(provisioning.GROUP, "Cluster", *Key.of(wanted))
            raise Missing(Wait(Code.REFERENCE, subject, Actor.USER, on, f"{FIELD}: there is no {KIND} {name}"))
        return found

    def _users(self, template: Obj) -> list[Key]:
        return [Key.of(each) for each in self._wanted.indexed(_BY_TEMPLATE, name_of(template))]


def standing(manager: Manager) -> Standing:
    """The controller that keeps the templates there that every server has. What somebody makes of them is theirs."""
    return Standing(manager, "podsecurity-templates", management.POD_SECURITY_TEMPLATES, lambda: BUILT_IN)


def _matters(new: Obj | None, old: Obj | None) -> bool:
    return bool(dig(new or {}, "configuration") != dig(old or {}, "configuration"))
