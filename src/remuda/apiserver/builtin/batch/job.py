"""Jobs: selectors and labels that the server generates, and specs that are mostly immutable."""

from __future__ import annotations

from remuda.kube import names, selectors
from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import OMITTED, duplicate, invalid_value, not_supported, required, too_long, too_many

from ...registry import object_meta
from ...registry.strategy import AGE, NAME, Elapsed, Strategy, between, column, container_columns, format_selector
from .. import checks, internal_types, workloads
from ..checks import MAX_INT32, Errors, Obj, same, sub
from ..pods.defaults import default_template
from ..pods.spec import template_errors
from .job_status import status_update_errors

_UID, _NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
_OLD_UID, _OLD_NAME = "controller-uid", "job-name"
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_INDEXED = "requires indexed completion mode"


def default_job_spec(spec: Obj) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    if spec.get("backoffLimit") is None:
        spec["backoffLimit"] = MAX_INT32 if spec.get("backoffLimitPerIndex") is not None else 6
    for field, value in (("completionMode", "NonIndexed"), ("suspend", False), ("manualSelector", False)):
        if spec.get(field) is None:
            spec[field] = value
    if spec.get("podReplacementPolicy") is None:
        spec["podReplacementPolicy"] = "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed"


def default_failure_policy(spec: Obj) -> None:
    for rule in sub(spec, "podFailurePolicy").get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if not pattern.get("status"):
                pattern["status"] = "True"


def _default(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    labels = sub(spec, "template", "metadata").get("labels")
    if labels and not sub(obj, "metadata").get("labels"):
        obj.setdefault("metadata", {})["labels"] = dict(labels)
    default_job_spec(spec)
    default_failure_policy(spec)


def _prepare_for_create(obj: Obj) -> None:
    spec, meta = obj.setdefault("spec", {}), obj.setdefault("metadata", {})
    obj["status"] = {}
    if spec.get("manualSelector"):
        return
    template_meta = spec.setdefault("template", {}).setdefault("metadata", {})
    # In kube-apiserver, labels that were defaulted from the template share one map with it, and so get these too; a Job
    # without labels gets them on its next read.
    shared = not meta.get("labels") or meta["labels"] == template_meta.get("labels")
    labels = dict(template_meta.get("labels") or {})
    for key, value in ((_OLD_NAME, "name"), (_NAME, "name"), (_OLD_UID, "uid"), (_UID, "uid")):
        labels.setdefault(key, meta.get(value) or "")
    template_meta["labels"] = labels
    if shared:
        meta["labels"] = dict(labels)
    selector = spec["selector"] = dict(spec.get("selector") or {})
    selector["matchLabels"] = {_UID: meta.get("uid") or "", **(selector.get("matchLabels") or {})}


# ---------------------------------------------------------------------------------------------------------------------
# Validation


def _has_label(template_meta: Obj, key: str, expected: str) -> Errors:
    labels, path = template_meta.get("labels") or {}, f"spec.template.metadata.labels[{key}]"
    if key not in labels:
        return [required(path, f"must be '{expected}'")]
    return [] if labels[key] == expected else [invalid_value(path, labels, f"must be '{expected}'")]


def _generated_errors(obj: Obj, prefixed: bool) -> Errors:
    spec, meta = sub(obj, "spec"), sub(obj, "metadata")
    if spec.get("manualSelector") or spec.get("selector") is None:
        return []
    uid, name = meta.get("uid") or "", meta.get("name") or ""
    errors: Errors = [] if uid else [required("metadata.uid")]
    expected = {_OLD_UID: uid, _OLD_NAME: name}
    if prefixed:
        expected |= {_UID: uid, _NAME: name}
    for key, value in expected.items():
        errors += _has_label(sub(spec, "template", "metadata"), key, value)
    selector = workloads.parsed_selector(spec["selector"])
    if selector is not None and not selector.matches(expected):
        shown = checks.shown_selector(spec["selector"])
        errors.append(invalid_value("spec.selector", shown, "`selector` not auto-generated"))
    return errors


def _validate(obj: Obj, prefixed: bool = True) -> Errors:
    errors = checks.meta_errors(obj, True, object_meta.subdomain_name)
    errors += _generated_errors(obj, prefixed) + _full_spec_errors(sub(obj, "spec"))
    spec, name = sub(obj, "spec"), sub(obj, "metadata").get("name") or ""
    if spec.get("completionMode") == "Indexed" and (spec.get("completions") or 0) > 0:
        hostname = f"{name}-{spec['completions'] - 1}"
        if names.dns_label_problems(hostname):
            why = f"will not able to create pod with invalid DNS label: {hostname}"
            errors.append(invalid_value("metadata.name", name, why))
    return errors


def _full_spec_errors(spec: Obj) -> Errors:
    errors = job_spec_errors(spec, "spec")
    selector = spec.get("selector")
    errors += [required("spec.selector")] if selector is None else selectors.structure_errors(selector, "spec.selector")
    return errors + workloads.mismatch_errors(workloads.parsed_selector(selector), sub(spec, "template"), "spec.template")


def job_spec_errors(spec: Obj, path: str) -> Errors:
    """Errors in the spec of a job or of a cron job's template."""
    numbers = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    errors = checks.all_nonnegative(spec, (*numbers, "backoffLimitPerIndex", "maxFailedIndexes"), path)
    per_index, most_failed = spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes")
    if most_failed is not None and per_index is None:
        errors.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if spec.get("managedBy") is not None:
        errors += checks.domain_prefixed_path(spec["managedBy"], f"{path}.managedBy")
        if len(spec["managedBy"]) > 63:
            errors.append(too_long(f"{path}.managedBy", 63))
    errors += _completion_errors(spec, path)
    if spec.get("podFailurePolicy") is not None:
        errors += _failure_policy_errors(spec, f"{path}.podFailurePolicy")
    if spec.get("successPolicy") is not None:
        if spec.get("completionMode") != "Indexed":
            rules = spec["successPolicy"].get("rules") or []
            fields = (("SucceededIndexes", "succeededIndexes"), ("SucceededCount", "succeededCount"))
            shown = {"Rules": [{go: rule.get(name) for go, name in fields} for rule in rules]}
            errors.append(invalid_value(f"{path}.successPolicy", checks.Verbatim(dumps_text(shown)), _INDEXED))
        else:
            errors += _success_policy_errors(spec, f"{path}.successPolicy.rules")
    errors += _replacement_errors(spec, f"{path}.podReplacementPolicy")
    errors += template_errors(sub(spec, "template"), f"{path}.template")
    return errors + _restart_errors(spec, f"{path}.template.spec.restartPolicy")


def _completion_errors(spec: Obj, path: str) -> Errors:
    mode, completions, parallelism = (spec.get(f) for f in ("completionMode", "completions", "parallelism"))
    per_index, most_failed = spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes")
    errors: Errors = []
    if mode is not None and mode not in ("NonIndexed", "Indexed"):
        errors.append(not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed":
        if completions is None:
            errors.append(required(f"{path}.completions", "when completion mode is Indexed"))
        if (parallelism or 0) > 100_000:
            why = "must be less than or equal to 100000 when completion mode is Indexed"
            errors.append(invalid_value(f"{path}.parallelism", parallelism, why))
        if completions is not None and most_failed is not None and most_failed > completions:
            errors.append(invalid_value(f"{path}.maxFailedIndexes", most_failed, "must be less than or equal to completions"))
        if (most_failed or 0) > 100_000:
            errors.append(invalid_value(f"{path}.maxFailedIndexes", most_failed, "must be less than or equal to 100000"))
        if (completions or 0) > 100_000 and per_index is not None:
            errors += _many_completions_errors(spec, path)
    if mode in (None, "NonIndexed"):
        for field, value in (("backoffLimitPerIndex", per_index), ("maxFailedIndexes", most_failed)):
            if value is not None:
                errors.append(invalid_value(f"{path}.{field}", value, _INDEXED))
    return errors


def _many_completions_errors(spec: Obj, path: str) -> Errors:
    errors: Errors = []
    if spec.get("maxFailedIndexes") is None:
        errors.append(required(f"{path}.maxFailedIndexes", "must be specified when completions is above 100000"))
    why = "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index"
    for field in ("parallelism", "maxFailedIndexes"):
        if (spec.get(field) or 0) > 10_000:
            errors.append(invalid_value(f"{path}.{field}", spec[field], why))
    return errors


def _listed(values: tuple[str, ...]) -> str:
    return "valid values: [" + " ".join(f'"{value}"' for value in values) + "]"


def _failure_policy_errors(spec: Obj, path: str) -> Errors:
    rules = sub(spec, "podFailurePolicy").get("rules") or []
    errors: Errors = [too_many(f"{path}.rules", len(rules), 20)] if len(rules) > 20 else []
    pod = sub(spec, "template", "spec")
    known = {each.get("name") for field in ("containers", "initContainers") for each in pod.get(field) or ()}
    for index, rule in enumerate(rules):
        at, action = f"{path}.rules[{index}]", rule.get("action") or ""
        if not action:
            errors.append(required(f"{at}.action", _listed(_ACTIONS)))
        elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            errors.append(invalid_value(f"{at}.action", action, "requires the backoffLimitPerIndex to be set"))
        elif action not in _ACTIONS:
            errors.append(not_supported(f"{at}.action", action, _ACTIONS))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if codes is not None:
            errors += _exit_code_errors(codes, known, f"{at}.onExitCodes")
        errors += _condition_errors(conditions, f"{at}.onPodConditions")
        if codes is not None and conditions:
            errors.append(invalid_value(at, OMITTED, "specifying both OnExitCodes and OnPodConditions is not supported"))
        if codes is None and not conditions:
            errors.append(invalid_value(at, OMITTED, "specifying one of OnExitCodes and OnPodConditions is required"))
    return errors


def _exit_code_errors(codes: Obj, known: set[str | None], path: str) -> Errors:
    operator, values, name = codes.get("operator") or "", codes.get("values") or [], codes.get("containerName")
    errors: Errors = []
    if not operator:
        errors.append(required(f"{path}.operator", _listed(("In", "NotIn"))))
    elif operator not in ("In", "NotIn"):
        errors.append(not_supported(f"{path}.operator", operator, ("In", "NotIn")))
    if name is not None and name not in known:
        why = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid_value(f"{path}.containerName", name, why))
    if not values:
        errors.append(invalid_value(f"{path}.values", values, "at least one value is required"))
    elif len(values) > 255:
        errors.append(too_many(f"{path}.values", len(values), 255))
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            errors.append(invalid_value(f"{path}.values[{index}]", value, "must not be 0 for the In operator"))
        if value in values[:index]:
            errors.append(duplicate(f"{path}.values[{index}]", value))
    if values != sorted(values):
        errors.append(invalid_value(f"{path}.values", values, "must be ordered"))
    return errors


def _condition_errors(conditions: list[Obj], path: str) -> Errors:
    errors: Errors = [too_many(path, len(conditions), 20)] if len(conditions) > 20 else []
    for index, pattern in enumerate(conditions):
        errors += checks.qualified(pattern.get("type") or "", f"{path}[{index}].type")
        status = pattern.get("status") or ""
        allowed = ("False", "True", "Unknown")
        if not status:
            errors.append(required(f"{path}[{index}].status", _listed(allowed)))
        elif status not in allowed:
            errors.append(not_supported(f"{path}[{index}].status", status, allowed))
    return errors


def _success_policy_errors(spec: Obj, path: str) -> Errors:
    rules = sub(spec, "successPolicy").get("rules") or []
    errors: Errors = []
    if not rules:
        why = "at least one rules must be specified when the successPolicy is specified"
        errors.append(required(path, why))
    if len(rules) > 20:
        errors.append(too_many(path, len(rules), 20))
    completions = spec.get("completions") or 0
    for index, rule in enumerate(rules):
        count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            why = "at least one of succeededCount or succeededIndexes must be specified"
            errors.append(required(f"{path}[{index}]", why))
        at = f"{path}[{index}].succeededCount"
        errors += checks.nonnegative(count, at)
        if count is not None and count > completions:
            why = f"must be less than or equal to {completions} (the number of specified completions)"
            errors.append(invalid_value(at, count, why))
    return errors


def _replacement_errors(spec: Obj, path: str) -> Errors:
    policy = spec.get("podReplacementPolicy")
    if policy is None:
        return []
    allowed = ("Failed",) if spec.get("podFailurePolicy") is not None else ("Failed", "TerminatingOrFailed")
    return [] if policy in allowed else [not_supported(path, policy, allowed)]


def _restart_errors(spec: Obj, path: str) -> Errors:
    policy = sub(spec, "template", "spec").get("restartPolicy") or ""
    if policy in ("Always", ""):
        return [required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in ("OnFailure", "Never"):
        return [not_supported(path, policy, ("OnFailure", "Never"))]
    if spec.get("podFailurePolicy") is not None and policy != "Never":
        return [invalid_value(path, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


# ---------------------------------------------------------------------------------------------------------------------
# Updates


def _validate_update(obj: Obj, old: Obj) -> Errors:
    spec, before = sub(obj, "spec"), sub(old, "spec")
    old_labels = sub(before, "template", "metadata").get("labels") or {}
    errors = _validate(obj, _UID in old_labels and _NAME in old_labels)
    errors += checks.meta_update_errors(obj, old) + _full_spec_errors(spec)
    errors += _completions_change_errors(spec, before) + workloads.immutable_selector(spec, before)
    errors += _template_change_errors(spec, before, old)
    for field in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        errors += checks.immutable(spec.get(field), before.get(field), f"spec.{field}")
    return errors


def _completions_change_errors(spec: Obj, before: Obj) -> Errors:
    new, old = spec.get("completions"), before.get("completions")
    if spec.get("completionMode") != "Indexed":
        return checks.immutable(new, old, "spec.completions")
    if new is None or new == old or new == spec.get("parallelism"):
        return []
    return [invalid_value("spec.completions", new, "can only be modified in tandem with spec.parallelism")]


def _template_change_errors(spec: Obj, before: Obj, old: Obj) -> Errors:
    """A job's template is immutable; in a suspended job that has not run, scheduling fields may change."""
    template, was = sub(spec, "template"), sub(before, "template")
    status = sub(old, "status")
    halted = not status.get("startTime") or any(
        each.get("type") == "Suspended" and each.get("status") == "True" for each in status.get("conditions") or ()
    )
    movable = bool(before.get("suspend")) and halted and not status.get("active")
    if movable:
        template, was = _without_placement(template), _without_placement(was)
    if same(template, was):
        return []
    if movable:
        shown = internal_types.shown("PodSpec", sub(spec, "template", "spec"))
        return [invalid_value("spec.template.spec", shown, object_meta.IMMUTABLE)]
    shown = internal_types.shown("PodTemplateSpec", sub(spec, "template"))
    return [invalid_value("spec.template", shown, object_meta.IMMUTABLE)]


def _without_placement(template: Obj) -> Obj:
    pod = {k: v for k, v in sub(template, "spec").items() if k not in ("nodeSelector", "tolerations", "schedulingGates")}
    affinity = {k: v for k, v in (pod.pop("affinity", None) or {}).items() if k != "nodeAffinity"}
    for field in ("containers", "initContainers"):
        if pod.get(field):
            pod[field] = [{k: v for k, v in each.items() if k != "resources"} for each in pod[field]]
    return {"spec": {**pod, "affinity": affinity}}


def _job_status(obj: Obj) -> str:
    found = {each.get("type"): each.get("status") for each in reversed(sub(obj, "status").get("conditions") or [])}
    for kind in ("Complete", "Failed"):
        if found.get(kind) == "True":
            return kind
    if sub(obj, "metadata").get("deletionTimestamp"):
        return "Terminating"
    for kind in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if found.get(kind) == "True":
            return kind
    return "Running"


def _completions(obj: Obj) -> str:
    spec, done = sub(obj, "spec"), sub(obj, "status").get("succeeded") or 0
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _duration(obj: Obj) -> str | Elapsed:
    start, end = (sub(obj, "status").get(field) for field in ("startTime", "completionTime"))
    if not start:
        return ""
    return between(start, end) if end else Elapsed(start)


def job_spec_warnings(spec: Obj, path: str) -> list[str]:
    found: list[str] = []
    if (
        spec.get("completionMode") == "Indexed"
        and (spec.get("completions") or 0) > 100_000
        and (spec.get("parallelism") or 0) > 10_000
    ):
        found.append(
            "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes "
            "might not be able to track completedIndexes when a big number of indexes fail"
        )
    return found + workloads.template_warnings(spec.get("template"), f"{path}.template")


def _warnings(obj: Obj, old: Obj | None) -> list[str]:
    found = workloads.hostname_warnings(obj, workloads.HOSTNAMES) if old is None else []
    if old is not None and same(obj.get("spec"), old.get("spec")):
        return found
    return found + job_spec_warnings(sub(obj, "spec"), "spec")


STRATEGY = Strategy(
    default=_default,
    prepare_for_create=_prepare_for_create,
    validate=_validate,
    prepare_for_update=checks.keep_status,
    validate_update=_validate_update,
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=status_update_errors,
    warnings=_warnings,
    name_problems=object_meta.subdomain_name,
    fields=lambda obj: {"status.successful": str(sub(obj, "status").get("succeeded") or 0)},
    field_names=frozenset(("status.successful",)),
    columns=(
        NAME,
        column("Status", _job_status, "The number of completed pods of the job, and of required ones."),
        column("Completions", _completions, "Pods that succeeded, of those that have to."),
        column("Duration", _duration, "The time that it ran, or has been running."),
        AGE,
        *container_columns("spec", "template", "spec", "containers"),
        column("Selector", lambda obj: format_selector(sub(obj, "spec").get("selector")), "Its pods.", wide=True),
    ),
    generation=True,
)
