"""Requests to somebody else's remediation: an object made from a template, named as the machine, for as long as it is unhealthy.

That name is what makes a request unique, also across a crash between making it and saying so on the machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.kube.errors import ApiError, go_quote
from remuda.kube.objects import GroupVersion, Key, dig, is_being_deleted, name_of, namespace_of, uid_of
from remuda.kube.owners import reference
from remuda.runtime import Informer

from ..contracts import NoContract
from ..controller_context import Core, cluster_name_of
from ..template_cloning import clone, cloned_kind, not_there

Obj = dict[str, Any]


class TemplateMissing(Exception):
    """There is no template to make a request from."""


def template_of(check: Obj) -> Obj | None:
    """The reference to the template (apiVersion, kind, name) of a MachineHealthCheck that has one."""
    found = dig(check, "spec", "remediation", "templateRef")
    return found if isinstance(found, dict) and found.get("name") else None


def references(check: Obj) -> Iterable[Obj]:
    """For :meth:`~remuda.capi.external_objects.Externals.followed_by`: a template that comes later is noticed."""
    template = template_of(check)
    if template is None:
        return ()
    group = GroupVersion.parse(template.get("apiVersion") or "").group
    return ({"apiGroup": group, "kind": template.get("kind"), "name": template.get("name")},)


class Requests:
    def __init__(self, core: Core, controller: str) -> None:
        self._core = core
        self._controller = controller

    async def ensure(self, check: Obj, template: Obj, machine: Obj) -> bool:
        """A request for this machine is there; whether it was made just now. Raises TemplateMissing, or why it can't be made."""
        requests = await self._cache(check, template, cloned_kind(template["kind"]))
        if requests.get(namespace_of(machine), name_of(machine)) is not None:
            return False
        source = (await self._cache(check, template, template["kind"])).get(namespace_of(check), template["name"])
        if source is None:
            raise TemplateMissing(not_there(next(iter(references(check))), namespace_of(check)))
        request = clone(
            source,
            name=name_of(machine),
            namespace=namespace_of(machine),
            cluster=cluster_name_of(machine),
            owner=reference(machine),
        )
        try:
            made = await self._core.client.create(requests.resource, request, namespace_of(machine))
        except ApiError as error:
            if error.is_already_exists:
                return False
            raise
        self._core.wrote(self._controller, Key.of(check), requests, made)
        return True

    async def withdraw(self, check: Obj, template: Obj, machine: Obj) -> None:
        """The machine is healthy: nobody needs to do anything any more."""
        try:
            requests = await self._cache(check, template, cloned_kind(template["kind"]))
        except TemplateMissing:
            return
        request = requests.get(namespace_of(machine), name_of(machine))
        if request is None or is_being_deleted(request):
            return
        try:
            await self._core.client.delete(requests.resource, name_of(request), namespace_of(request), uid=uid_of(request))
        except ApiError as error:
            # Gone already, or another one of the same name, which the next look finds.
            if not error.is_not_found and not error.is_conflict:
                raise
        self._core.deleted(self._controller, Key.of(check), requests, request)

    async def _cache(self, check: Obj, template: Obj, kind: str) -> Informer:
        api_version = template.get("apiVersion") or ""
        try:
            return await self._core.externals.versioned(api_version, kind)
        except NoContract:
            why = f"no matches for kind {go_quote(kind)} in version {go_quote(api_version)}"
            raise TemplateMissing(f"failed to retrieve {kind} {Key(namespace_of(check), template['name'])}: {why}") from None
