"""One object from v1beta1 to v1beta2 or back, and the annotation that makes the way back lossless.

On the way down the v1beta2 object is put into an annotation; on the way up it provides what v1beta1 can't express: whether
a zero was intended, and the fields that v1beta1 lacks. Everything else is taken from v1beta1's own fields, so that an old
client's changes win.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.apiserver.crd.conversion import ConversionError
from remuda.kube.encoding.jsonio import JsonError, dumps_sorted, loads

from .field_rules import ContractVersions, Scope
from .go_structs import Obj
from .kind_rules import KINDS, Kind

GROUP = "cluster.x-k8s.io"
V1BETA1, V1BETA2 = f"{GROUP}/v1beta1", f"{GROUP}/v1beta2"
DATA_ANNOTATION = "cluster.x-k8s.io/conversion-data"


def convert(obj: Obj, api_version: str, versions: ContractVersions) -> Obj:
    """The object in `api_version`; the one it is given stays as it is, and parts of it are shared with the result.

    A reference to a kind that `versions` does not know does not fail the conversion, as it does upstream: it gets an
    apiVersion made up from its group, and converts back to the same.
    """
    current = obj.get("apiVersion")
    if current == api_version:
        return obj
    kind = KINDS.get(str(obj.get("kind")))
    if kind is None or {current, api_version} != {V1BETA1, V1BETA2}:
        raise ConversionError(f"{obj.get('kind')} can't be converted from {current} to {api_version}")
    if obj.keys() <= {"apiVersion", "kind"}:
        return {**obj, "apiVersion": api_version}
    return _up(obj, kind, versions) if api_version == V1BETA2 else _down(obj, kind, versions)


def converter(versions: ContractVersions) -> Callable[[Obj, str], Obj]:
    """:func:`convert` in the form that an :class:`~remuda.runtime.admitted_types.AdmittedType` takes."""

    def with_versions(obj: Obj, api_version: str) -> Obj:
        return convert(obj, api_version, versions)

    return with_versions


def _up(obj: Obj, kind: Kind, versions: ContractVersions) -> Obj:
    metadata, restored = _taken(obj.get("metadata") or {}) if kind.keeps_data else (obj.get("metadata") or {}, None)
    scope = Scope(_namespace(obj), versions, restored)
    plain = kind.v1beta1.read(obj)
    found = {section: pair.up(plain.get(section) or {}, scope.within((section,))) for section, pair in kind.sections.items()}
    written = kind.v1beta2.write({section: value for section, value in found.items() if value})
    return {"apiVersion": V1BETA2, "kind": obj["kind"], "metadata": metadata, **written}


def _down(obj: Obj, kind: Kind, versions: ContractVersions) -> Obj:
    plain = kind.v1beta2.read(obj)
    metadata = obj.get("metadata") or {}
    if kind.keeps_data:
        metadata = _given(metadata, obj["kind"], kind.v1beta2.write(plain))
    scope = Scope(_namespace(obj), versions)
    found = {section: pair.down(plain.get(section) or {}, scope) for section, pair in kind.sections.items()}
    return {"apiVersion": V1BETA1, "kind": obj["kind"], "metadata": metadata, **kind.v1beta1.write(found)}


def _namespace(obj: Obj) -> str:
    return (obj.get("metadata") or {}).get("namespace") or ""


def _given(metadata: Obj, kind: str, sections: Obj) -> Obj:
    """The metadata with the v1beta2 object in the annotation. Its keys are sorted, so that one object always looks the same."""
    data = {"apiVersion": V1BETA2, "kind": kind, **(sections or {"metadata": {}})}
    return {**metadata, "annotations": {**(metadata.get("annotations") or {}), DATA_ANNOTATION: dumps_sorted(data).decode()}}


def _taken(metadata: Obj) -> tuple[Obj, Obj | None]:
    """The metadata without the annotation, and the annotation's data. Unreadable data (a client wrote it) counts as none."""
    annotations: dict[str, Any] = metadata.get("annotations") or {}
    if DATA_ANNOTATION not in annotations:
        return metadata, None
    rest = {key: value for key, value in annotations.items() if key != DATA_ANNOTATION}
    without = {key: value for key, value in metadata.items() if key != "annotations"}
    return {**without, "annotations": rest} if rest else without, _parsed(annotations[DATA_ANNOTATION])


def _parsed(text: str) -> Obj | None:
    try:
        data = loads(text)
    except JsonError:
        return None
    return {} if data is None else data if isinstance(data, dict) else None
