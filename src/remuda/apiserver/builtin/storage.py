"""storage.k8s.io: classes, drivers and attachments."""

from __future__ import annotations

from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import Verbatim, duplicate, forbidden_field, invalid_value, not_supported, required, too_long

from ..registry import object_meta
from ..registry.strategy import AGE, NAME, NONE, UNSET, Column, Strategy, at, column, length, number
from . import checks
from .checks import Errors, Obj, sub
from .pods.volumes import csi_driver_errors

_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def is_default(obj: Obj, annotations: tuple[str, ...]) -> bool:
    found = sub(obj, "metadata").get("annotations") or {}
    return any(found.get(name) == "true" for name in annotations)


def _default_class(obj: Obj) -> None:
    for field, value in (("reclaimPolicy", "Delete"), ("volumeBindingMode", "Immediate")):
        if obj.get(field) is None:
            obj[field] = value


def _parameter_errors(parameters: dict[str, str]) -> Errors:
    if len(parameters) > 512:
        return [too_long("parameters", 512)]
    errors: Errors = [invalid_value("parameters", key, "field can not be empty.") for key in parameters if not key]
    if sum(len(key) + len(value) for key, value in parameters.items()) > 256 * 1024:
        errors.append(too_long("parameters", 256 * 1024))
    return errors


def _class_errors(obj: Obj) -> Errors:
    errors = checks.meta_errors(obj, False, object_meta.subdomain_name)
    provisioner = obj.get("provisioner") or ""
    errors += checks.qualified(provisioner.lower(), "provisioner") if provisioner else [required("provisioner")]
    errors += _parameter_errors(obj.get("parameters") or {})
    errors += checks.supported(obj.get("reclaimPolicy"), ("Delete", "Retain"), "reclaimPolicy", False)
    modes = ("Immediate", "WaitForFirstConsumer")
    mode = obj.get("volumeBindingMode")
    if mode is None:
        errors.append(required("volumeBindingMode"))
    elif mode not in modes:
        errors.append(not_supported("volumeBindingMode", mode, modes))
    for index, term in enumerate(obj.get("allowedTopologies") or ()):
        errors += _topology_errors(term, f"allowedTopologies[{index}].matchLabelExpressions")
    return errors


def _topology_errors(term: Obj, path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, each in enumerate(term.get("matchLabelExpressions") or ()):
        at_each, key, values = f"{path}[{index}]", each.get("key") or "", each.get("values") or []
        if not values:
            errors.append(required(f"{at_each}.values"))
        for place, value in enumerate(values):
            if value in values[:place]:
                errors.append(duplicate(f"{at_each}.values[{place}]", value))
        errors += checks.qualified(key, f"{at_each}.key")
        if key in seen:
            errors.append(duplicate(f"{at_each}.key", key))
        seen.add(key)
    return errors


def _class_update_errors(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old)
    for field in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
        errors += checks.immutable(obj.get(field), old.get(field), field)
    return errors


def default_marked(annotations: tuple[str, ...]) -> Column:
    def value(obj: Obj) -> str:
        name = sub(obj, "metadata").get("name") or ""
        return f"{name} (default)" if is_default(obj, annotations) else name

    return Column(NAME.name, NAME.type, NAME.description, value, NAME.format)


STORAGE_CLASS = Strategy(
    default=_default_class,
    validate=_class_errors,
    validate_update=_class_update_errors,
    name_problems=object_meta.subdomain_name,
    columns=(
        default_marked(_DEFAULT_CLASS),
        column("Provisioner", at("provisioner"), "The provisioner of the volumes."),
        column("ReclaimPolicy", at("reclaimPolicy", default="Delete"), "The reclaim policy of the volumes."),
        column("VolumeBindingMode", at("volumeBindingMode", default="Immediate"), "When volumes are made and bound."),
        column("AllowVolumeExpansion", at("allowVolumeExpansion", default=False), "Whether volumes can grow."),
        AGE,
    ),
)


def _node_errors(obj: Obj) -> Errors:
    errors = checks.meta_errors(obj, False, object_meta.subdomain_name)
    seen: set[str] = set()
    for index, driver in enumerate(sub(obj, "spec").get("drivers") or ()):
        path, name, node = f"spec.drivers[{index}]", driver.get("name") or "", driver.get("nodeID") or ""
        errors += csi_driver_errors(name, f"{path}.name")
        if not node:
            errors.append(required(f"{path}.nodeID"))
        if len(node) > 256:
            errors.append(invalid_value(f"{path}.nodeID", node, "must be 256 characters or less"))
        errors += checks.nonnegative(sub(driver, "allocatable").get("count"), f"{path}.allocatable.count")
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
        keys = driver.get("topologyKeys") or []
        for place, key in enumerate(keys):
            errors += [required(path)] if not key else []
            errors += [duplicate(path, key)] if key in keys[:place] else []
            errors += checks.qualified(key, path)
    return errors


CSI_NODE = Strategy(
    validate=_node_errors,
    validate_update=lambda obj, old: _node_errors(obj),
    name_problems=object_meta.subdomain_name,
    columns=(NAME, number("Drivers", length("spec", "drivers"), "Drivers on the node."), AGE),
    allow_unconditional_update=False,
)


def _default_driver(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    defaults = (
        ("attachRequired", True),
        ("podInfoOnMount", False),
        ("storageCapacity", False),
        ("fsGroupPolicy", "ReadWriteOnceWithFSType"),
        ("requiresRepublish", False),
        ("seLinuxMount", False),
    )
    for field, value in defaults:
        if spec.get(field) is None:
            spec[field] = value
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


def _driver_spec_errors(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    errors: Errors = []
    policies = ("File", "None", "ReadWriteOnceWithFSType")
    errors += checks.supported(spec.get("fsGroupPolicy"), policies, "spec.fsGroupPolicy", False)
    seen: set[str] = set()
    for index, request in enumerate(spec.get("tokenRequests") or ()):
        path, audience = f"spec.tokenRequests[{index}]", request.get("audience") or ""
        seconds = request.get("expirationSeconds")
        if audience in seen:
            errors.append(duplicate(f"{path}.audience", audience))
            continue
        seen.add(audience)
        if seconds is not None and seconds < 600:
            why = "may not specify a duration less than 10 minutes"
            errors.append(invalid_value(f"{path}.expirationSeconds", seconds, why))
    for mode in spec.get("volumeLifecycleModes") or ():
        allowed = ("Persistent", "Ephemeral")
        if mode not in allowed:
            errors.append(not_supported("spec.volumeLifecycleModes", mode, allowed))
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        why = "must be greater than or equal to 10 seconds"
        errors.append(invalid_value("spec.nodeAllocatableUpdatePeriodSeconds", period, why))
    return errors


def _driver_update_errors(obj: Obj, old: Obj) -> Errors:
    spec, before = sub(obj, "spec"), sub(old, "spec")
    errors = checks.meta_update_errors(obj, old) + _driver_spec_errors(obj)
    errors += checks.immutable(spec.get("attachRequired"), before.get("attachRequired"), "spec.attachedRequired")
    modes = "volumeLifecycleModes"
    return errors + checks.immutable(spec.get(modes), before.get(modes), f"spec.{modes}")


def _audiences(obj: Obj) -> str:
    requests = sub(obj, "spec").get("tokenRequests")
    return UNSET if requests is None else ",".join(each.get("audience") or "" for each in requests)


def _flag(name: str, field: str, default: bool, description: str) -> Column:
    return number(name, at("spec", field, default=default), description, "boolean")


def _prepare_driver_update(obj: Obj, old: Obj) -> None:
    # The generation counts changes; a new driver has none.
    if not checks.same(obj.get("spec"), old.get("spec")):
        obj["metadata"]["generation"] = (sub(old, "metadata").get("generation") or 0) + 1


def _driver_warnings(obj: Obj, old: Obj | None) -> list[str]:
    spec = sub(obj, "spec")
    wanted = spec.get("tokenRequests")
    if not wanted or spec.get("serviceAccountTokenInSecrets") is not None:
        return []
    if old is not None and checks.same(wanted, sub(old, "spec").get("tokenRequests")):
        return []
    return [
        "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
        "logging of tokens in volume attributes"
    ]


CSI_DRIVER = Strategy(
    default=_default_driver,
    warnings=_driver_warnings,
    prepare_for_update=_prepare_driver_update,
    validate=lambda obj: checks.meta_errors(obj, False, object_meta.subdomain_name) + _driver_spec_errors(obj),
    validate_update=_driver_update_errors,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        _flag("AttachRequired", "attachRequired", True, "Whether volumes are attached before they are mounted."),
        _flag("PodInfoOnMount", "podInfoOnMount", False, "Whether the driver is told about the pod."),
        _flag("StorageCapacity", "storageCapacity", False, "Whether the scheduler asks for free space."),
        column("TokenRequests", _audiences, "Audiences of the tokens that the driver gets."),
        _flag("RequiresRepublish", "requiresRepublish", False, "Whether mounts are repeated now and then."),
        column("Modes", lambda obj: ",".join(sub(obj, "spec").get("volumeLifecycleModes") or ()) or NONE, "Lives of volumes."),
        AGE,
    ),
    allow_unconditional_update=False,
)


def _attachment_errors(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    errors = checks.meta_errors(obj, False, object_meta.subdomain_name)
    errors += csi_driver_errors(spec.get("attacher") or "", "spec.attacher")
    source = sub(spec, "source")
    name, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if name is None and inline is None:
        errors.append(required("spec.source", why))
    elif name is not None and inline is not None:
        errors.append(forbidden_field("spec.source", why))
    elif name is not None and not name:
        errors.append(required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName"))
    errors += checks.subdomain(spec.get("nodeName") or "", "spec.nodeName")
    if name is not None:
        errors += checks.subdomain(name, "spec.source.persistentVolumeName")
    return errors


def _attachment_update_errors(obj: Obj, old: Obj) -> Errors:
    shown = _shown_attachment(sub(obj, "spec"))
    return _attachment_errors(obj) + checks.immutable(obj.get("spec"), old.get("spec"), "spec", shown)


def _shown_attachment(spec: Obj) -> Verbatim:
    """The spec as the real server prints it, with its Go type's names."""
    source = sub(spec, "source")
    fields = {
        "Attacher": spec.get("attacher") or "",
        "Source": {
            "PersistentVolumeName": source.get("persistentVolumeName"),
            "InlineVolumeSpec": source.get("inlineVolumeSpec"),
        },
        "NodeName": spec.get("nodeName") or "",
    }
    return Verbatim(dumps_text(fields))


VOLUME_ATTACHMENT = Strategy(
    prepare_for_create=checks.fresh_status(attached=False),
    validate=_attachment_errors,
    prepare_for_update=checks.keep_status,
    validate_update=_attachment_update_errors,
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=_attachment_update_errors,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        Column("Attacher", "string", "Driver that attaches the volume.", at("spec", "attacher"), "name"),
        column("PV", at("spec", "source", "persistentVolumeName"), "The volume."),
        column("Node", at("spec", "nodeName"), "The node."),
        number("Attached", at("status", "attached", default=False), "Whether it is there.", "boolean"),
        AGE,
    ),
    allow_unconditional_update=False,
)
