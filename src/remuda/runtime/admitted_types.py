"""Defaulting, validation and conversion of our own types: written once, served two ways.

An :class:`AdmittedType` holds plain functions. :func:`remuda.apiserver.admission.chain.install` puts them into the embedded API
server; on a real Kubernetes the same functions answer webhooks (:mod:`.webhook_server`). Either way they see the object in the
one version they are written for: a request in another version is converted before and, if it was changed, back afterwards, as
with `matchPolicy: Equivalent`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from remuda.kube.admission_attributes import CREATE, DELETE, EVERY, UPDATE, Attributes
from remuda.kube.errors import FieldError, invalid

Obj = dict[str, Any]

# Returns the object with defaults, or None when there is nothing to add. Its argument is shared: copy on write.
Default = Callable[[Attributes], Obj | None]
# The same for defaults that need a request to another server, or a write beside the object; called after the defaults. Writes
# nothing for a dry run.
Mutate = Callable[[Attributes], Awaitable[Obj | None]]
# Returns the errors; may also raise an ApiError of its own, or append to `attributes.warnings`.
Validate = Callable[[Attributes], Iterable[FieldError]]
# The same for checks that need a request to another server; called last, when nothing else is wrong.
Verify = Callable[[Attributes], Awaitable[Iterable[FieldError]]]
# Returns the object in another version ("group/version"); the argument stays as it is.
Convert = Callable[[Obj, str], Obj]


@dataclass(frozen=True, slots=True)
class AdmittedType:
    """`version` is the one that `default` and `validate` are written for. A type with one version needs no `convert`. `verify`
    requires a `validate`.

    With the resource `*` (:data:`EVERY`) it is all kinds of a group whose definitions are made at runtime; `kind` is then a
    word for them in paths. With `namespaces` it is only the objects in those. `only_if` (CEL) limits the requests for which
    a webhook is called at all; in process the functions themselves ignore the others.
    """

    group: str
    version: str
    resource: str
    kind: str
    default: Default | None = None
    validate: Validate | None = None
    convert: Convert | None = None
    validates_deletion: bool = False
    verify: Verify | None = None
    namespaces: tuple[str, ...] = ()
    mutate: Mutate | None = None
    only_if: str = ""

    @property
    def mutates(self) -> bool:
        return self.default is not None or self.mutate is not None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    @property
    def validated_operations(self) -> tuple[str, ...]:
        return (CREATE, UPDATE, DELETE) if self.validates_deletion else (CREATE, UPDATE)

    def concerns(self, attributes: Attributes) -> bool:
        """True if it is about objects of the request's namespace."""
        return not self.namespaces or attributes.namespace in self.namespaces

    def defaulted(self, attributes: Attributes) -> Obj | None:
        """The object with defaults in the request's own version; None when nothing is to be added."""
        if self.default is None or attributes.obj is None:
            return None
        changed = self.default(self._understood(attributes))
        if changed is None:
            return None
        return self._in_version(changed, f"{attributes.group}/{attributes.version}")

    async def mutated(self, attributes: Attributes) -> Obj | None:
        """The object as it will be stored, in the request's own version; None when nothing changes."""
        changed = self.defaulted(attributes)
        if self.mutate is None or attributes.obj is None:
            return changed
        seen = attributes if changed is None else replace(attributes, obj=changed)
        further = await self.mutate(self._understood(seen))
        return changed if further is None else self._in_version(further, f"{attributes.group}/{attributes.version}")

    def errors(self, attributes: Attributes) -> list[FieldError]:
        return [] if self.validate is None else list(self.validate(self._understood(attributes)))

    def check(self, attributes: Attributes) -> None:
        """Raise the client's error when something is wrong."""
        self._refuse(attributes, self.errors(attributes))

    async def verified(self, attributes: Attributes) -> None:
        """Raise the client's error when a check that needs other servers finds a problem."""
        if self.verify is not None:
            self._refuse(attributes, list(await self.verify(self._understood(attributes))))

    def _refuse(self, attributes: Attributes, found: list[FieldError]) -> None:
        if found:
            kind = attributes.kind if self.resource == EVERY else self.kind
            raise invalid(self.group, kind, attributes.display_name, found)

    def _understood(self, attributes: Attributes) -> Attributes:
        if attributes.version == self.version or self.convert is None:
            return attributes
        return replace(
            attributes,
            version=self.version,
            obj=None if attributes.obj is None else self._in_version(attributes.obj, self.api_version),
            old=None if attributes.old is None else self._in_version(attributes.old, self.api_version),
        )

    def _in_version(self, obj: Obj, api_version: str) -> Obj:
        if self.convert is None or obj.get("apiVersion") == api_version:
            return obj
        return self.convert(obj, api_version)


def merged(types: Iterable[AdmittedType]) -> tuple[AdmittedType, ...]:
    """One type for each kind: packages have their own rules for one kind, but a webhook has one address. Raises ValueError."""
    by_kind: dict[tuple[str, str, str], list[AdmittedType]] = {}
    for each in types:
        by_kind.setdefault((each.group, each.resource, each.kind), []).append(each)
    return tuple(found[0] if len(found) == 1 else _together(found) for found in by_kind.values())


def _together(types: Sequence[AdmittedType]) -> AdmittedType:
    return AdmittedType(**{field.name: _MERGED[field.name](types) for field in fields(AdmittedType)})


def _same(name: str) -> Callable[[Sequence[AdmittedType]], Any]:
    def found(types: Sequence[AdmittedType]) -> Any:
        values = {value for each in types if (value := getattr(each, name)) is not None}
        if len(values) > 1:
            raise ValueError(f"the rules of {types[0].resource}.{types[0].group} differ in {name}")
        return next(iter(values), None)

    return found


def _one_default(types: Sequence[AdmittedType]) -> Default | None:
    asked = [(each, each.default) for each in types if each.default is not None]

    def default(attributes: Attributes) -> Obj | None:
        changed: Obj | None = None
        for each, one in asked:
            if each.concerns(attributes):
                found = one(attributes if changed is None else replace(attributes, obj=changed))
                changed = changed if found is None else found
        return changed

    return default if asked else None


def _one_mutate(types: Sequence[AdmittedType]) -> Mutate | None:
    asked = [(each, each.mutate) for each in types if each.mutate is not None]

    async def mutate(attributes: Attributes) -> Obj | None:
        changed: Obj | None = None
        for each, one in asked:
            if each.concerns(attributes):
                found = await one(attributes if changed is None else replace(attributes, obj=changed))
                changed = changed if found is None else found
        return changed

    return mutate if asked else None


def _one_validate(types: Sequence[AdmittedType]) -> Validate | None:
    asked = [(each, each.validate) for each in types if each.validate is not None]

    def validate(attributes: Attributes) -> Iterable[FieldError]:
        return [error for each, one in asked if _validates(each, attributes) for error in one(attributes)]

    return validate if asked else None


def _one_verify(types: Sequence[AdmittedType]) -> Verify | None:
    asked = [(each, each.verify) for each in types if each.verify is not None]

    async def verify(attributes: Attributes) -> Iterable[FieldError]:
        return [error for each, one in asked if _validates(each, attributes) for error in await one(attributes)]

    return verify if asked else None


def _validates(of: AdmittedType, attributes: Attributes) -> bool:
    return of.concerns(attributes) and attributes.operation in of.validated_operations


def _all_namespaces(types: Sequence[AdmittedType]) -> tuple[str, ...]:
    limited = all(each.namespaces for each in types)
    return tuple(sorted({name for each in types for name in each.namespaces})) if limited else ()


def _any_condition(types: Sequence[AdmittedType]) -> str:
    return " || ".join(f"({each.only_if})" for each in types) if all(each.only_if for each in types) else ""


# The merge of each field of several types. A field that is missing here fails at the first merge.
_MERGED: Mapping[str, Callable[[Sequence[AdmittedType]], Any]] = {
    "group": _same("group"),
    "version": _same("version"),
    "resource": _same("resource"),
    "kind": _same("kind"),
    "default": _one_default,
    "validate": _one_validate,
    "convert": _same("convert"),
    "validates_deletion": lambda types: any(each.validates_deletion for each in types),
    "verify": _one_verify,
    "namespaces": _all_namespaces,
    "mutate": _one_mutate,
    "only_if": _any_condition,
}
