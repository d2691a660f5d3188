"""StatefulSets, DaemonSets and ControllerRevisions."""

from __future__ import annotations

from remuda.kube import names, selectors
from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import forbidden_field, invalid_value, not_supported, required

from ...registry import object_meta
from ...registry.strategy import AGE, NAME, NONE, Strategy, at, column, container_columns, format_labels, number
from .. import checks, workloads
from ..checks import Errors, Obj, same, sub
from ..claim_spec import claim_spec_errors
from ..core.volume import claim_spec_warnings
from ..pods.defaults import default_template
from ..pods.spec import pod_annotation_errors, template_errors
from .deployment import SELECTOR, ready_of_desired

_CONTAINERS = container_columns("spec", "template", "spec", "containers")


def _default_stateful(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    if not spec.get("podManagementPolicy"):
        spec["podManagementPolicy"] = "OrderedReady"
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy["rollingUpdate"] = strategy.get("rollingUpdate") or {}
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        strategy["rollingUpdate"].setdefault("partition", 0)
    retention = spec["persistentVolumeClaimRetentionPolicy"] = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for field in ("whenDeleted", "whenScaled"):
        if not retention.get(field):
            retention[field] = "Retain"
    for field, value in (("replicas", 1), ("revisionHistoryLimit", 10)):
        if spec.get(field) is None:
            spec[field] = value
    for claim in spec.get("volumeClaimTemplates") or ():
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
        if not sub(claim, "status").get("phase"):
            claim["status"] = {**sub(claim, "status"), "phase": "Pending"}
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")


def _stateful_strategy_errors(strategy: Obj) -> Errors:
    path, rolling = "spec.updateStrategy", strategy.get("rollingUpdate")
    match strategy.get("type") or "":
        case "":
            return [required(path)]
        case "OnDelete":
            if rolling is None:
                return []
            shown = {"Partition": rolling.get("partition") or 0, "MaxUnavailable": rolling.get("maxUnavailable")}
            why = "only allowed for updateStrategy 'RollingUpdate'"
            return [invalid_value(f"{path}.rollingUpdate", checks.Verbatim(dumps_text(shown)), why)]
        case "RollingUpdate":
            return _stateful_rolling_errors(rolling, f"{path}.rollingUpdate") if rolling is not None else []
    shown = {"Type": strategy.get("type"), "RollingUpdate": rolling}
    return [invalid_value(path, checks.Verbatim(dumps_text(shown)), "must be 'RollingUpdate' or 'OnDelete'")]


def _stateful_rolling_errors(rolling: Obj, path: str) -> Errors:
    errors = checks.nonnegative(rolling.get("partition"), f"{path}.partition")
    most = rolling.get("maxUnavailable")
    if most is not None:
        at_most = f"{path}.maxUnavailable"
        errors += checks.int_or_percent(most, at_most)
        if checks.scaled(most) == 0:
            errors.append(invalid_value(at_most, most, "cannot be 0"))
        errors += checks.at_most_100_percent(most, at_most)
    return errors


def _stateful_errors(spec: Obj, new: bool) -> Errors:
    errors: Errors = []
    policy = spec.get("podManagementPolicy") or ""
    if not policy:
        errors.append(required("spec.podManagementPolicy"))
    elif policy not in ("OrderedReady", "Parallel"):
        errors.append(invalid_value("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    errors += _stateful_strategy_errors(sub(spec, "updateStrategy"))
    retention = spec.get("persistentVolumeClaimRetentionPolicy")
    for field in ("whenDeleted", "whenScaled") if retention is not None else ():
        value = sub(retention).get(field) or ""
        if value not in ("Retain", "Delete"):
            path = f"spec.persistentVolumeClaimRetentionPolicy.{field}"
            errors.append(not_supported(path, value, ("Retain", "Delete")))
    claims = spec.get("volumeClaimTemplates") or []
    if new:
        for index, claim in enumerate(claims):
            errors += claim_spec_errors(sub(claim, "spec"), f"spec.volumeClaimTemplates[{index}].spec")
    errors += checks.all_nonnegative(spec, ("replicas", "minReadySeconds"), "spec")
    if spec.get("ordinals") is not None:
        errors += checks.nonnegative(sub(spec, "ordinals").get("start"), "spec.ordinals.start")
    if new and spec.get("serviceName"):
        errors += checks.dns_label(spec["serviceName"], "spec.serviceName")
    errors += workloads.selector_errors(spec, "statefulset")
    selector = workloads.parsed_selector(spec.get("selector"))
    template = sub(spec, "template")
    if selector is None:
        errors.append(invalid_value("spec.selector", checks.shown_selector(spec.get("selector")), ""))
    else:
        checked = _with_claims(template, claims)
        if not selector.empty:
            errors += workloads.mismatch_errors(selector, checked, "spec.template")
        errors += _stateful_template_errors(checked)
    return errors + workloads.always_restarted_errors(template, "StatefulSet", "spec.template")


def _stateful_template_errors(template: Obj) -> Errors:
    meta, path = sub(template, "metadata"), "spec.template"
    errors = template_errors(template, path)
    # kube-apiserver looks at the metadata a second time here.
    errors += names.label_errors(meta.get("labels"), f"{path}.labels")
    errors += names.annotation_errors(meta.get("annotations"), f"{path}.annotations")
    return errors + pod_annotation_errors(meta.get("annotations"), sub(template, "spec"), f"{path}.annotations")


def _with_claims(template: Obj, claims: list[Obj]) -> Obj:
    """The template as in its pods: each claim is a volume, and hostname and subdomain are the set's own."""
    spec = {key: value for key, value in sub(template, "spec").items() if key not in ("subdomain", "hostname")}
    if claims:
        claimed = [sub(claim, "metadata").get("name") or "" for claim in claims]
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claimed]
        volumes += [volume for volume in spec.get("volumes") or () if volume.get("name") not in claimed]
        spec["volumes"] = volumes
    return {**template, "spec": spec}


_MUTABLE = (
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
)


def _stateful_update_errors(obj: Obj, old: Obj) -> Errors:
    spec, before = sub(obj, "spec"), sub(old, "spec")
    errors = checks.meta_update_errors(obj, old) + _stateful_errors(spec, new=False)
    fixed, was = ({k: v for k, v in each.items() if k not in _MUTABLE} for each in (spec, before))
    if not same(fixed, was):
        why = (
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
            "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
        )
        errors.append(forbidden_field("spec", why))
    return errors


_STATEFUL_COUNTS = (
    "replicas",
    "readyReplicas",
    "currentReplicas",
    "updatedReplicas",
    "availableReplicas",
    "observedGeneration",
    "collisionCount",
)


def _stateful_status_errors(obj: Obj, old: Obj) -> Errors:
    status = sub(obj, "status")
    errors = checks.all_nonnegative(status, _STATEFUL_COUNTS, "status")
    errors += workloads.at_most_replicas(status, _STATEFUL_COUNTS[1:5], "status.readyReplicas")
    errors += checks.meta_update_errors(obj, old)
    return errors + workloads.collision_errors(status, sub(old, "status"))


def _stateful_warnings(obj: Obj, old: Obj | None) -> list[str]:
    found = workloads.warnings(obj, old, hostnames=False)
    suffix = "" if old is None else ".Spec"
    for index, claim in enumerate(sub(obj, "spec").get("volumeClaimTemplates") or ()):
        found += claim_spec_warnings(sub(claim, "spec"), f"spec.volumeClaimTemplates[{index}]{suffix}")
    if (sub(obj, "spec").get("revisionHistoryLimit") or 0) < 0:
        advice = "a negative value retains all historical revisions; a value >= 0 is recommended"
        found.append(f"spec.revisionHistoryLimit: {advice}")
    return found


STATEFUL_SET = Strategy(
    default=_default_stateful,
    prepare_for_create=checks.fresh_status(replicas=0, availableReplicas=0),
    validate=lambda obj: checks.meta_errors(obj, True, object_meta.label_name) + _stateful_errors(sub(obj, "spec"), new=True),
    prepare_for_update=checks.keep_status,
    validate_update=_stateful_update_errors,
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=_stateful_status_errors,
    warnings=_stateful_warnings,
    name_problems=object_meta.label_name,
    columns=(
        NAME,
        column("Ready", ready_of_desired, "Pods that are ready, of those there should be."),
        AGE,
        *_CONTAINERS,
    ),
    generation=True,
)


# ---------------------------------------------------------------------------------------------------------------------
# Daemon sets

_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def _default_daemon(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy["rollingUpdate"] = strategy.get("rollingUpdate") or {}
        for field, value in (("maxUnavailable", 1), ("maxSurge", 0)):
            if rolling.get(field) is None:
                rolling[field] = value
    if spec.get("revisionHistoryLimit") is None:
        spec["revisionHistoryLimit"] = 10
    # A field inside the real server is an annotation outside, so that the writer of the object owns it.
    _note_template(obj, _template_generation(obj))


def _template_generation(obj: Obj) -> int:
    text = (sub(obj, "metadata").get("annotations") or {}).get(_TEMPLATE_GENERATION, "0")
    return int(text) if text.isdigit() else 0


def _note_template(obj: Obj, generation: int) -> None:
    meta = obj.setdefault("metadata", {})
    meta["annotations"] = {**(meta.get("annotations") or {}), _TEMPLATE_GENERATION: str(generation)}


_FRESH_DAEMON = checks.fresh_status(currentNumberScheduled=0, numberMisscheduled=0, desiredNumberScheduled=0, numberReady=0)


def _prepare_daemon(obj: Obj) -> None:
    _FRESH_DAEMON(obj)
    _note_template(obj, max(_template_generation(obj), 1))


def _prepare_daemon_update(obj: Obj, old: Obj) -> None:
    checks.keep_status(obj, old)
    changed = not same(sub(obj, "spec").get("template"), sub(old, "spec").get("template"))
    _note_template(obj, _template_generation(old) + (1 if changed else 0))


def _daemon_errors(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    given, template = spec.get("selector"), sub(spec, "template")
    selector = workloads.parsed_selector(given)
    errors: Errors = selectors.structure_errors(given, "spec.selector")
    errors += workloads.mismatch_errors(selector, template, "spec.template")
    if given is not None and not given.get("matchLabels") and not given.get("matchExpressions"):
        why = "empty selector is invalid for daemonset"
        errors.append(invalid_value("spec.selector", checks.shown_selector(given), why))
    errors += workloads.running_template_errors(template, "DaemonSet", "spec.template")
    errors += checks.nonnegative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    errors += _daemon_strategy_errors(sub(spec, "updateStrategy"))
    return errors + checks.nonnegative(spec.get("revisionHistoryLimit"), "spec.revisionHistoryLimit")


def _daemon_strategy_errors(strategy: Obj) -> Errors:
    path, rolling = "spec.updateStrategy", strategy.get("rollingUpdate")
    if strategy.get("type") == "OnDelete":
        return []
    if strategy.get("type") != "RollingUpdate":
        shown = checks.Verbatim(dumps_text({"Type": strategy.get("type") or "", "RollingUpdate": rolling}))
        return [not_supported(path, shown, ("RollingUpdate", "OnDelete"))]
    at_rolling = f"{path}.rollingUpdate"
    if rolling is None:
        return [required(at_rolling)]
    errors: Errors = []
    for check in (checks.int_or_percent, checks.at_most_100_percent):
        for field in ("maxUnavailable", "maxSurge"):
            errors += check(rolling.get(field), f"{at_rolling}.{field}")
    unavailable, surge = (checks.scaled(rolling.get(field)) for field in ("maxUnavailable", "maxSurge"))
    if unavailable and surge:
        why = "may not be set when maxUnavailable is non-zero"
        errors.append(invalid_value(f"{at_rolling}.maxSurge", rolling.get("maxSurge"), why))
    elif not unavailable and not surge:
        errors.append(required(f"{at_rolling}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return errors


def _daemon_update_errors(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old)
    return errors + workloads.immutable_selector(sub(obj, "spec"), sub(old, "spec")) + _daemon_errors(obj)


_DAEMON_COUNTS = (
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "observedGeneration",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "collisionCount",
)


def _daemon_status_errors(obj: Obj, old: Obj) -> Errors:
    status = sub(obj, "status")
    errors = checks.meta_update_errors(obj, old) + checks.all_nonnegative(status, _DAEMON_COUNTS, "status")
    return errors + workloads.collision_errors(status, sub(old, "status"))


def _daemon_warnings(obj: Obj, old: Obj | None) -> list[str]:
    if old is not None and same(sub(obj, "spec").get("template"), sub(old, "spec").get("template")):
        return []
    return workloads.warnings(obj, None, hostnames=False)


DAEMON_SET = Strategy(
    default=_default_daemon,
    prepare_for_create=_prepare_daemon,
    validate=lambda obj: checks.meta_errors(obj, True, object_meta.subdomain_name) + _daemon_errors(obj),
    prepare_for_update=_prepare_daemon_update,
    validate_update=_daemon_update_errors,
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=_daemon_status_errors,
    warnings=_daemon_warnings,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        number("Desired", at("status", "desiredNumberScheduled", default=0), "Nodes that should run the pod."),
        number("Current", at("status", "currentNumberScheduled", default=0), "Nodes that run it."),
        number("Ready", at("status", "numberReady", default=0), "Nodes on which it is ready."),
        number("Up-to-date", at("status", "updatedNumberScheduled", default=0), "Nodes with the newest template."),
        number("Available", at("status", "numberAvailable", default=0), "Nodes on which it has been ready long enough."),
        column(
            "Node Selector",
            lambda obj: format_labels(sub(obj, "spec", "template", "spec").get("nodeSelector")),
            "Nodes that it may run on.",
        ),
        AGE,
        *_CONTAINERS,
        SELECTOR,
    ),
    generation=True,
)


# ---------------------------------------------------------------------------------------------------------------------
# Controller revisions


def _revision_errors(obj: Obj) -> Errors:
    errors = checks.meta_errors(obj, True, object_meta.subdomain_name)
    return errors + checks.nonnegative(obj.get("revision"), "revision")


def _new_revision_errors(obj: Obj) -> Errors:
    errors, data = _revision_errors(obj), obj.get("data")
    if data is None:
        errors.append(required("data", "data is mandatory"))
    elif not isinstance(data, dict):
        errors.append(required("data", "data must be a valid JSON object"))
    return errors


def _revision_update_errors(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old) + _revision_errors(obj)
    return errors + ([] if obj.get("data") == old.get("data") else checks.immutable(obj.get("data"), "", "data"))


def _controller(obj: Obj) -> str:
    for reference in sub(obj, "metadata").get("ownerReferences") or ():
        if reference.get("controller"):
            group = (reference.get("apiVersion") or "").rpartition("/")[0]
            kind = (reference.get("kind") or "") + (f".{group}" if group else "")
            return f"{kind.lower()}/{reference.get('name') or ''}"
    return NONE


CONTROLLER_REVISION = Strategy(
    validate=_new_revision_errors,
    validate_update=_revision_update_errors,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        column("Controller", _controller, "The owner of the revision."),
        column("Revision", at("revision", default=0), "Its number."),
        AGE,
    ),
)
