"""Go's view of the structs on the wire, as a table: which values count as absent, and which fields are always written.

All others convert by way of Go structs, so their answers carry Go's habits: unknown fields are dropped, a plain zero is
as good as no value, an empty list of an `omitempty` field is not written, and a field without `omitempty` is written even if
it was never set. A :class:`StructFields` says which habit a field has; the tables are in :mod:`.v1beta1` and :mod:`.v1beta2`.

Between reading and writing a struct is a *plain* dict: a key is there if and only if Go's value would not be zero. So "is this
struct empty" is the dict's truth value, and moving a field is moving a key (:mod:`.field_rules`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Obj = dict[str, Any]

# The result of reading or writing an absent value.
_ABSENT: Any = object()
_Function = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """`read` and `write` are None where a value stays as it is; `zero` gives the value of an unset, always written field."""

    read: _Function | None
    write: _Function | None
    zero: Callable[[], Any]
    shape: StructFields | None = None


class StructFields:
    """The fields of one struct by name. A name ending in "!" is written always; several names may share an entry."""

    __slots__ = ("always", "fields")

    def __init__(self, fields: Mapping[str, Field]) -> None:
        self.fields: dict[str, Field] = {}
        always: list[tuple[str, Field]] = []
        for names, field in fields.items():
            for name in names.split():
                self.fields[name.removesuffix("!")] = field
                if name.endswith("!"):
                    always.append((name[:-1], field))
        self.always = tuple(always)

    def read(self, raw: Any) -> Obj:
        """The plain form of a struct on the wire; the argument stays as it is."""
        found: Obj = {}
        if not raw:
            return found
        fields = self.fields
        for key, value in raw.items():
            field = fields.get(key)
            if field is None or value is None:
                continue
            read = field.read
            if read is not None:
                value = read(value)
                if value is _ABSENT:
                    continue
            found[key] = value
        return found

    def write(self, plain: Obj) -> Obj:
        """A struct in plain form as it is sent over the wire."""
        found: Obj = {}
        fields = self.fields
        for key, value in plain.items():
            write = fields[key].write
            if write is not None:
                value = write(value)
                if value is _ABSENT:
                    continue
            found[key] = value
        for key, field in self.always:
            if key not in found:
                found[key] = field.zero()
        return found


def _unless_zero(value: Any) -> Any:
    return value or _ABSENT


def _nothing() -> None:
    return None


def timestamp(text: str) -> str:
    """A time as Go writes it: in UTC and to the second."""
    if len(text) == 20 and text[-1] == "Z":
        return text
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return text
    return parsed.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def _time(text: Any) -> Any:
    """Go's zero time counts as none. (Upstream shows it as null where v1beta1 has a pointer, which its own schema refuses.)"""
    found = timestamp(text)
    return _ABSENT if found == "0001-01-01T00:00:00Z" else found


STRING = Field(_unless_zero, None, str)
INT = Field(_unless_zero, None, int)
BOOL = Field(_unless_zero, None, bool)
# A pointer to a scalar (or any value with a meaning of its own): zero and unset are different.
POINTER = Field(None, None, _nothing)
TIME = Field(_time, None, _nothing)
# A list of strings or a map of strings.
COLLECTION = Field(None, _unless_zero, _nothing)
# The same without `omitempty`.
KEPT_COLLECTION = Field(None, None, _nothing)
DURATION = Field(None, None, lambda: "0s")


def struct(shape: StructFields) -> Field:
    """A struct inside a struct. Mark it with "!" unless it is `omitzero`."""
    return Field(lambda raw: shape.read(raw) or _ABSENT, shape.write, lambda: shape.write({}), shape)


def pointer(shape: StructFields) -> Field:
    """A pointer to a struct: an empty one is still written."""
    return Field(shape.read, shape.write, _nothing, shape)


def many(shape: StructFields) -> Field:
    """A list of structs."""
    read, write = shape.read, shape.write
    return Field(
        lambda raw: [read(each) for each in raw],
        lambda plain: [write(each) for each in plain] or _ABSENT,
        _nothing,
        shape,
    )


def mapping(shape: StructFields) -> Field:
    """A map of names to structs."""
    read, write = shape.read, shape.write
    return Field(
        lambda raw: {key: read(each) for key, each in raw.items()},
        lambda plain: {key: write(each) for key, each in plain.items()} or _ABSENT,
        _nothing,
        shape,
    )


# --- shared structs -------------------------------------------------------------------------------------------------------
#
# Structs that look the same in v1beta1 and v1beta2, our own and Kubernetes'.

# Kubernetes'.
CONDITION = StructFields({"type! status! reason! message!": STRING, "lastTransitionTime!": TIME, "observedGeneration": INT})
OBJECT_REFERENCE = StructFields({"kind namespace name uid apiVersion resourceVersion fieldPath": STRING})
LABEL_SELECTOR = StructFields(
    {
        "matchLabels": COLLECTION,
        "matchExpressions": many(StructFields({"key! operator!": STRING, "values": COLLECTION})),
    }
)
NODE_SYSTEM_INFO = StructFields(
    {
        "machineID! systemUUID! bootID! kernelVersion! osImage!": STRING,
        "containerRuntimeVersion! kubeletVersion! kubeProxyVersion! operatingSystem! architecture!": STRING,
        "swap": pointer(StructFields({"capacity": POINTER})),
    }
)

# Cluster API's.
LEGACY_CONDITION = StructFields({"type! status!": STRING, "lastTransitionTime!": TIME, "severity reason message": STRING})
OBJECT_META = StructFields({"labels annotations": COLLECTION})
TAINT = StructFields({"key value effect propagation": STRING})
STATUS_VERSION = StructFields({"version": STRING, "replicas": INT})
REPLICA_COUNTS = StructFields(
    {
        "desiredReplicas replicas upToDateReplicas readyReplicas availableReplicas": POINTER,
        "versions": many(STATUS_VERSION),
        "upgradePlan": many(StructFields({"version": STRING})),
    }
)
FAILURE_DOMAIN_BY_NAME = StructFields({"controlPlane": BOOL, "attributes": COLLECTION})
DRAIN_RULE_MACHINES = StructFields({"selector clusterSelector": pointer(LABEL_SELECTOR)})
DRAIN_RULE_PODS = StructFields({"selector namespaceSelector": pointer(LABEL_SELECTOR)})
