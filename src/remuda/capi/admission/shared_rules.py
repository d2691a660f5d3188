"""Rules that several kinds share; each returns its errors, in upstream's words."""

from __future__ import annotations

from typing import Any

from remuda.capi import kubernetes_versions
from remuda.kube.encoding.go_format import IntegerError, atoi
from remuda.kube.errors import FieldError, Verbatim, forbidden_field, go_quote, invalid_value, required, show_value
from remuda.kube.objects import dig
from remuda.kube.selectors import LabelSelector, SelectorError, checked_structure

from .. import well_known

Errors = list[FieldError]

_PREFLIGHT_CHECKS = ("All", "ControlPlaneIsStable", "ControlPlaneVersionSkew", "KubeadmVersionSkew", "KubernetesVersionSkew")


def same_cluster_as_before(obj: Obj, old: Obj | None) -> Errors:
    if old is None or text(old, "spec", "clusterName") == text(obj, "spec", "clusterName"):
        return []
    return [forbidden_field("spec.clusterName", "field is immutable")]


def bootstrap_is_named(machine_spec: Obj, path: str) -> Errors:
    """A machine takes its bootstrap data from a config or from a secret."""
    bootstrap = section(machine_spec, "bootstrap")
    if is_reference(bootstrap.get("configRef")) or bootstrap.get("dataSecretName") is not None:
        return []
    why = f"expected either {path}.bootstrap.dataSecretName or {path}.bootstrap.configRef to be populated"
    return [required(f"{path}.bootstrap", why)]


def version_is_semantic(version: str, path: str) -> Errors:
    if not version:
        return []
    errors = [] if version.startswith("v") else [invalid_value(path, version, "must start with v")]
    try:
        kubernetes_versions.parse(version.removeprefix("v"))
    except kubernetes_versions.VersionError:
        errors.append(invalid_value(path, version, "must be a valid semantic version"))
    return errors


def int_or_percent(value: object, path: str) -> Errors:
    if not isinstance(value, str):
        return []
    if not value.endswith("%"):
        why = "invalid type: string is not a percentage"
    else:
        try:
            atoi(value[:-1])
            return []
        except IntegerError as error:
            why = f"invalid value {go_quote(value)}: {error}"
    return [invalid_value(path, value, f"must be either an int or a percentage: invalid value for IntOrString: {why}")]


def selector_of(structure: Obj, path: str, errors: Errors) -> LabelSelector | None:
    """The selector, or None after adding the reason why it is invalid."""
    try:
        return checked_structure(structure)
    except SelectorError as error:
        errors.append(invalid_value(path, shown_selector(structure), str(error)))
        return None


def skipped_preflight_checks(obj: Obj) -> Errors:
    skipped = text(obj, "metadata", "annotations", well_known.SKIP_PREFLIGHT_CHECKS)
    if not skipped:
        return []
    unknown = [name for name in (part.strip() for part in skipped.split(",")) if name not in _PREFLIGHT_CHECKS]
    if not unknown:
        return []
    why = f"skipped preflight check(s) must be among: [{' '.join(_PREFLIGHT_CHECKS)}]"
    return [invalid_value(f"metadata.annotations.{well_known.SKIP_PREFLIGHT_CHECKS}", unknown, why)]


# --- reading --------------------------------------------------------------------------------------------------------------
#
# Parts of an object as the rules need them.
#
# Defaults are set before the schema is checked, so anything may be missing or of the wrong type. An unreadable value counts as
# not set: the schema refuses it right afterwards, with the field's name.

Obj = dict[str, Any]


def section(obj: Obj | None, *path: str) -> Obj:
    found = dig(obj, *path)
    return found if isinstance(found, dict) else {}


def items(obj: Obj | None, *path: str) -> list[Any]:
    found = dig(obj, *path)
    return found if isinstance(found, list) else []


def text(obj: Obj | None, *path: str) -> str:
    found = dig(obj, *path)
    return found if isinstance(found, str) else ""


def whole_number(obj: Obj | None, *path: str) -> int | None:
    found = dig(obj, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def is_reference(value: Any) -> bool:
    """True if a reference names anything at all."""
    return any(text(value, field) for field in ("kind", "name", "apiGroup"))


def shown_selector(selector: Obj) -> Verbatim:
    """A selector as errors print it: labels first, without empty parts."""
    parts: list[str] = []
    if labels := selector.get("matchLabels"):
        parts.append(f'"matchLabels":{show_value(labels)}')
    if expressions := selector.get("matchExpressions"):
        parts.append(f'"matchExpressions":{show_value([_shown_expression(expression) for expression in expressions])}')
    return Verbatim(f"{{{','.join(parts)}}}")


def _shown_expression(expression: Obj) -> Obj:
    ordered: Obj = {"key": text(expression, "key"), "operator": text(expression, "operator")}
    if values := expression.get("values"):
        ordered["values"] = values
    return ordered
