"""The admission chain: every plug-in's mutating half, then (after the kind's own validation) every validating half.

The verbs call :meth:`Chain.admit` before a strategy validates and :meth:`Chain.validate` after. Most writes concern few
plug-ins, so the chain keeps one short list of them per resource. :class:`Hooks` is the plug-in through which our own types
add their defaulting and validation in-process; webhooks run after it, as users expect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from remuda.kube.admission_attributes import CREATE, EVERY, UPDATE, Attributes, Obj, Plugin, Reinvocation
from remuda.kube.errors import FieldError, invalid
from remuda.runtime.admitted_types import AdmittedType, Convert

from ..crd.conversion import InProcess, api_version_for


class Chain:
    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self.plugins = tuple(plugins)
        self._by_resource: dict[tuple[str, str], tuple[Plugin, ...]] = {}

    def add(self, plugin: Plugin) -> None:
        """Append a plug-in to the chain."""
        self.plugins = (*self.plugins, plugin)
        self._by_resource.clear()

    async def admit(self, attributes: Attributes) -> None:
        plugins = self._for(attributes)
        for plugin in plugins:
            await plugin.admit(attributes)
        again = attributes.reinvocation
        if again is None or not again.wanted:
            return
        # A webhook changed the object: run in-process plug-ins again, and the webhooks with reinvocationPolicy IfNeeded.
        again.second_round = True
        for plugin in plugins:
            await plugin.admit(attributes)

    async def validate(self, attributes: Attributes) -> None:
        for plugin in self._for(attributes):
            await plugin.validate(attributes)

    def _for(self, attributes: Attributes) -> tuple[Plugin, ...]:
        key = (attributes.group, attributes.resource)
        found = self._by_resource.get(key)
        if found is None:
            found = tuple(plugin for plugin in self.plugins if _concerns(plugin, key))
            self._by_resource[key] = found
        return found


def _concerns(plugin: Plugin, resource: tuple[str, str]) -> bool:
    """True when the plug-in handles the resource: one in its `resources`, or any if it has none."""
    named = getattr(plugin, "resources", None)
    return named is None or resource in named


# Gives the object with defaults, or None when there is nothing to add. The given object is shared: copy on write.
Default = Callable[[Attributes], Obj | None]
# The same with I/O, such as a request to another server.
Mutate = Callable[[Attributes], Awaitable[Obj | None]]
# Gives the errors; may also raise an ApiError of its own.
Validate = Callable[[Attributes], Iterable[FieldError]]
# The same with I/O, such as a request to another server; runs last, when there are no other errors.
Verify = Callable[[Attributes], Awaitable[Iterable[FieldError]]]


@dataclass(frozen=True, slots=True)
class _Hook:
    default: Default | None
    validate: Validate | None
    operations: frozenset[str]
    verify: Verify | None = None
    # Empty: all namespaces.
    namespaces: frozenset[str] = frozenset()
    mutate: Mutate | None = None


class Hooks:
    """In-process defaulting and validation of our own types."""

    name = "Hooks"

    def __init__(self) -> None:
        self._hooks: dict[tuple[str, str], list[_Hook]] = {}

    def register(
        self,
        group: str,
        resource: str,
        *,
        default: Default | None = None,
        validate: Validate | None = None,
        operations: Iterable[str] = (CREATE, UPDATE),
        verify: Verify | None = None,
        namespaces: Iterable[str] = (),
        mutate: Mutate | None = None,
    ) -> None:
        """Hooks run in the order of registration, for the object itself and not for its subresources. Those for the resource `*`
        are for every kind of the group, and run first."""
        hook = _Hook(default, validate, frozenset(operations), verify, frozenset(namespaces), mutate)
        self._hooks.setdefault((group, resource), []).append(hook)

    async def admit(self, attributes: Attributes) -> None:
        for hook in self._matching(attributes):
            if hook.default is not None and (changed := hook.default(attributes)) is not None:
                attributes.obj = changed
            if hook.mutate is not None and (changed := await hook.mutate(attributes)) is not None:
                attributes.obj = changed

    async def validate(self, attributes: Attributes) -> None:
        errors: list[FieldError] = []
        for hook in self._matching(attributes):
            if hook.validate is not None:
                errors.extend(hook.validate(attributes))
        for hook in self._matching(attributes) if not errors else ():
            if hook.verify is not None:
                errors.extend(await hook.verify(attributes))
        if errors:
            raise invalid(attributes.group, attributes.kind, attributes.display_name, errors)

    def _matching(self, attributes: Attributes) -> list[_Hook]:
        if attributes.subresource:
            return []
        hooks = self._hooks.get((attributes.group, EVERY), []) + self._hooks.get((attributes.group, attributes.resource), [])
        return [
            hook
            for hook in hooks
            if attributes.operation in hook.operations and (not hook.namespaces or attributes.namespace in hook.namespaces)
        ]


def reinvocation_of(attributes: Attributes) -> Reinvocation:
    """The request's memory of webhook runs, made on first use."""
    if attributes.reinvocation is None:
        attributes.reinvocation = Reinvocation()
    return attributes.reinvocation


class _Converter:
    """An in-process function as the API server's :class:`~remuda.apiserver.crd.conversion.Converter`."""

    def __init__(self, convert: Convert) -> None:
        self._convert = convert

    async def convert(self, objs: list[Obj], to_version: str) -> list[Obj]:
        return [self._one(obj, to_version) for obj in objs]

    def _one(self, obj: Obj, to_version: str) -> Obj:
        wanted = api_version_for(obj, to_version)
        return obj if obj.get("apiVersion") == wanted else self._convert(obj, wanted)


def install(types: Iterable[AdmittedType], hooks: Hooks, converters: InProcess) -> None:
    """Serve the types in-process: `hooks` and `converters` are the embedded API server's."""
    for each in types:
        if each.mutates:
            hooks.register(
                each.group, each.resource, mutate=each.mutated, operations=(CREATE, UPDATE), namespaces=each.namespaces
            )
        if each.validate is not None:
            hooks.register(
                each.group,
                each.resource,
                validate=each.errors,
                operations=each.validated_operations,
                verify=each.verify,
                namespaces=each.namespaces,
            )
        if each.convert is not None:
            converters.register(each.group, each.resource, _Converter(each.convert))
