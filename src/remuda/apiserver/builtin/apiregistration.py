"""apiregistration.k8s.io: APIServices."""

from __future__ import annotations

import base64

from remuda.kube import names
from remuda.kube.errors import go_quote, invalid_value, not_supported, required

from ..registry.strategy import AGE, NAME, Strategy, column
from . import checks
from .checks import Errors, Obj, sub


def _default(obj: Obj) -> None:
    service = sub(obj, "spec").get("service")
    if service is not None and service.get("port") is None:
        service["port"] = 443


def _prepare_for_create(obj: Obj) -> None:
    """An API that this server serves itself is available from the start."""
    checks.drop_status(obj)
    if not sub(obj, "spec").get("service"):
        obj["status"] = {
            "conditions": [
                {
                    "type": "Available",
                    "status": "True",
                    "lastTransitionTime": obj["metadata"].get("creationTimestamp"),
                    "reason": "Local",
                    "message": "Local APIServices are always available",
                }
            ]
        }


def _validate(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    group, version, service = spec.get("group") or "", spec.get("version") or "", spec.get("service")
    wanted = f"{version}.{group}"

    def name_problems(name: str, prefix: bool) -> list[str]:
        problems = names.path_segment_problems(name)
        if problems or name == wanted:
            return problems
        return [f'must be `spec.version+"."+spec.group`: {go_quote(wanted)}']

    errors = checks.meta_errors(obj, False, name_problems)
    if not group and version != "v1":
        why = "only v1 may have an empty group and it better be legacy kube"
        errors.append(required("spec.group", why))
    if group:
        errors += checks.subdomain(group, "spec.group")
    errors += [invalid_value("spec.version", version, why) for why in names.dns1035_label_problems(version)]
    for field, limit in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        value = spec.get(field) or 0
        if not 0 < value <= limit:
            errors.append(invalid_value(f"spec.{field}", value, f"must be positive and less than {limit}"))
    bundle, insecure = spec.get("caBundle") or "", spec.get("insecureSkipTLSVerify")
    if service is None:
        if bundle:
            shown = f"{len(base64.b64decode(bundle))} bytes"
            errors.append(invalid_value("spec.caBundle", shown, "local APIServices may not have a caBundle"))
        if insecure:
            why = "local APIServices may not have insecureSkipTLSVerify"
            errors.append(invalid_value("spec.insecureSkipTLSVerify", True, why))
        return errors
    for field in ("namespace", "name"):
        if not service.get(field):
            errors.append(required(f"spec.service.{field}"))
    port = service.get("port") or 0
    if not 1 <= port <= 65535:
        errors.append(invalid_value("spec.service.port", port, f"port is not valid: {checks.between(1, 65535)}"))
    if insecure and bundle:
        errors.append(invalid_value("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present"))
    return errors


def _status_errors(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old)
    for index, condition in enumerate(sub(obj, "status").get("conditions") or ()):
        status = condition.get("status") or ""
        if status not in ("True", "False", "Unknown"):
            path = f"status.conditions[{index}].status"
            errors.append(not_supported(path, status, ("True", "False", "Unknown")))
    return errors


def _service(obj: Obj) -> str:
    service = sub(obj, "spec").get("service")
    return "Local" if service is None else f"{service.get('namespace') or ''}/{service.get('name') or ''}"


def _available(obj: Obj) -> str:
    for condition in sub(obj, "status").get("conditions") or ():
        if condition.get("type") == "Available":
            status, reason = condition.get("status") or "", condition.get("reason") or ""
            return status if status == "True" or not reason else f"{status} ({reason})"
    return "Unknown"


API_SERVICE = Strategy(
    default=_default,
    prepare_for_create=_prepare_for_create,
    validate=_validate,
    prepare_for_update=checks.keep_status,
    validate_update=lambda obj, old: checks.meta_update_errors(obj, old) + _validate(obj),
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=_status_errors,
    name_problems=lambda name, prefix: names.path_segment_problems(name),
    columns=(
        NAME,
        column("Service", _service, "The service of this version."),
        column("Available", _available, "Whether it can be reached."),
        AGE,
    ),
    allow_unconditional_update=False,
)
