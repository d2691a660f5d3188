"""Nodes: taints, capacity, and pod ranges and provider id, which may be set once."""

from __future__ import annotations

import re

from remuda.kube import names
from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import FieldError, duplicate, forbidden_field, invalid_value, not_supported, required

from ...registry import object_meta
from ...registry.strategy import AGE, NAME, NONE, UNKNOWN, Strategy, at, column
from .. import checks
from ..checks import TAINT_EFFECTS, Errors, Obj, sub
from ..resource_quantities import quantity_errors

_ROLE = "node-role.kubernetes.io/"
_FEATURE = re.compile(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*")


def default_pod_ranges(spec: Obj) -> None:
    """podCIDR is the first of podCIDRs; podCIDR wins when they differ."""
    one, many = spec.get("podCIDR") or "", spec.get("podCIDRs") or []
    if one and (not many or many[0] != one):
        spec["podCIDRs"] = [one]
    elif many and not one:
        spec["podCIDR"] = many[0]


def _default(obj: Obj) -> None:
    if obj.get("spec"):
        default_pod_ranges(obj["spec"])
    status = sub(obj, "status")
    if status.get("allocatable") is None and status.get("capacity") is not None:
        obj["status"] = {**status, "allocatable": dict(status["capacity"])}


def _prepare_for_create(obj: Obj) -> None:
    sub(obj, "spec").pop("configSource", None)
    sub(obj, "status").pop("config", None)


def _prepare_for_update(obj: Obj, old: Obj) -> None:
    checks.keep_status(obj, old)
    if sub(old, "spec").get("configSource") is None:
        sub(obj, "spec").pop("configSource", None)


def taint_errors(taints: list[Obj], path: str) -> Errors:
    errors: Errors = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        at_index = f"{path}[{index}]"
        key, value, effect = taint.get("key") or "", taint.get("value") or "", taint.get("effect") or ""
        errors += checks.qualified(key, f"{at_index}.key")
        problems = names.label_value_problems(value)
        if problems:
            errors.append(invalid_value(f"{at_index}.value", value, ";".join(problems)))
        if not effect:
            errors.append(required(f"{at_index}.effect"))
        elif effect not in TAINT_EFFECTS:
            errors.append(not_supported(f"{at_index}.effect", effect, TAINT_EFFECTS))
        if (key, effect) in seen:
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            why = "taints must be unique by key and effect pair"
            errors.append(FieldError("FieldValueDuplicate", at_index, checks.Verbatim(dumps_text(shown)), why))
        seen.add((key, effect))
    return errors


def _capacity_errors(obj: Obj) -> Errors:
    errors: Errors = []
    for field in ("capacity", "allocatable"):
        for name, value in (sub(obj, "status").get(field) or {}).items():
            errors += quantity_errors(name, value, f"status.{field}.{name}")
    return errors


def _feature_errors(obj: Obj) -> Errors:
    errors: Errors = []
    features = sub(obj, "status").get("declaredFeatures") or []
    path = "status.declaredFeatures"
    for index, name in enumerate(features):
        if not _FEATURE.fullmatch(name):
            why = (
                f'invalid feature name "{name}": must start with an UpperCamelCase segment, with subsequent segments '
                "separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and "
                "slashes"
            )
            errors.append(invalid_value(f"{path}[{index}]", name, why))
        following = features[index + 1 : index + 2]
        if following and following[0] == name:
            errors.append(duplicate(f"{path}[{index + 1}]", name))
        elif following and following[0] < name:
            errors.append(invalid_value(f"{path}[{index + 1}]", following[0], "list must be sorted alphabetically"))
    return errors


def _validate(obj: Obj) -> Errors:
    errors = checks.meta_errors(obj, False, object_meta.subdomain_name)
    spec = sub(obj, "spec")
    errors += taint_errors(spec.get("taints") or [], "metadata.taints")
    errors += _capacity_errors(obj) + _feature_errors(obj)
    ranges = spec.get("podCIDRs") or []
    for index, value in enumerate(ranges):
        errors += checks.cidr(value, f"spec.podCIDRs[{index}]")
    wrong = next((i for i, value in enumerate(ranges) if checks.parse_ip(value.partition("/")[0]) is None), None)
    if len(ranges) > 1 and wrong is not None:
        why = (
            "invalid PodCIDRs. failed to check with dual stack with error:"
            f"invalid CIDR[{wrong}]: <nil> (invalid CIDR address: {ranges[wrong]})"
        )
        errors.append(FieldError("InternalError", "spec.podCIDRs", "", why))
    if len(ranges) > 1 and (len(ranges) > 2 or len(checks.families(r.partition("/")[0] for r in ranges)) < 2):
        errors.append(invalid_value("spec.podCIDRs", ranges, "may specify no more than one CIDR for each IP family"))
    return errors


def _update_errors(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old) + _capacity_errors(obj) + _feature_errors(obj)
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(sub(obj, "status").get("addresses") or ()):
        pair = (address.get("type") or "", address.get("address") or "")
        if pair in seen:
            shown = checks.Verbatim(dumps_text({"Type": pair[0], "Address": pair[1]}))
            errors.append(duplicate(f"status.addresses[{index}]", shown))
        seen.add(pair)
    errors += _set_once_errors(sub(obj, "spec"), sub(old, "spec"))
    errors += taint_errors(sub(obj, "spec").get("taints") or [], "metadata.taints")
    if (sub(obj, "spec").get("externalID") or "") != (sub(old, "spec").get("externalID") or ""):
        errors.append(forbidden_field("spec.externalID", "may not be updated"))
    return errors


def _set_once_errors(spec: Obj, before: Obj) -> Errors:
    errors: Errors = []
    ranges, new = before.get("podCIDRs") or [], spec.get("podCIDRs") or []
    if ranges:
        why = 'node updates may not change podCIDR except from "" to valid'
        changed = 1 if len(ranges) != len(new) else sum(a != b for a, b in zip(ranges, new, strict=True))
        errors += [forbidden_field("spec.podCIDRs", why)] * changed
    if before.get("providerID") and before["providerID"] != spec.get("providerID"):
        why = 'node updates may not change providerID except from "" to valid'
        errors.append(forbidden_field("spec.providerID", why))
    return errors


def _warnings(obj: Obj, old: Obj | None) -> list[str]:
    spec = sub(obj, "spec")
    found = ["spec.configSource: the feature is removed"] if spec.get("configSource") is not None else []
    if spec.get("externalID"):
        found.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Columns


def _status(obj: Obj) -> str:
    ready = [c for c in sub(obj, "status").get("conditions") or () if c.get("type") == "Ready"]
    words = ["Unknown"] if not ready else ["Ready" if ready[-1].get("status") == "True" else "NotReady"]
    if sub(obj, "spec").get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _roles(obj: Obj) -> str:
    found: set[str] = set()
    for key, value in (sub(obj, "metadata").get("labels") or {}).items():
        if key.startswith(_ROLE) and len(key) > len(_ROLE):
            found.add(key[len(_ROLE) :])
        elif key == "kubernetes.io/role" and value:
            found.add(value)
    return ",".join(sorted(found)) or NONE


def _address(kind: str, obj: Obj) -> str:
    for address in sub(obj, "status").get("addresses") or ():
        if address.get("type") == kind:
            return address.get("address") or ""
    return NONE


def _info(field: str, obj: Obj) -> str:
    return sub(obj, "status", "nodeInfo").get(field) or UNKNOWN


def _kernel(obj: Obj) -> str:
    architecture = sub(obj, "status", "nodeInfo").get("architecture")
    return _info("kernelVersion", obj) + (f" ({architecture})" if architecture else "")


STRATEGY = Strategy(
    default=_default,
    prepare_for_create=_prepare_for_create,
    validate=_validate,
    prepare_for_update=_prepare_for_update,
    validate_update=lambda obj, old: _validate(obj) + _update_errors(obj, old),
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=_update_errors,
    warnings=_warnings,
    name_problems=object_meta.subdomain_name,
    fields=lambda obj: {"spec.unschedulable": "true" if sub(obj, "spec").get("unschedulable") else "false"},
    field_names=frozenset(("spec.unschedulable",)),
    columns=(
        NAME,
        column("Status", _status, "Whether the node is ready and takes new pods."),
        column("Roles", _roles, "The node's roles, from its labels."),
        AGE,
        column("Version", at("status", "nodeInfo", "kubeletVersion"), "Version of the kubelet."),
        column("Internal-IP", lambda obj: _address("InternalIP", obj), "Address inside the cluster.", wide=True),
        column("External-IP", lambda obj: _address("ExternalIP", obj), "Address from outside.", wide=True),
        column("OS-Image", lambda obj: _info("osImage", obj), "Operating system.", wide=True),
        column("Kernel-Version", _kernel, "Kernel, and the architecture it runs on.", wide=True),
        column("Container-Runtime", lambda obj: _info("containerRuntimeVersion", obj), "Container runtime.", wide=True),
    ),
)
