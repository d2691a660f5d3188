"""Volumes of pods: exactly one source each, checked by its kind. PersistentVolumes share the simpler checks."""

from __future__ import annotations

from collections.abc import Callable

from remuda.kube.errors import duplicate, forbidden_field, go_quote, invalid_value, not_supported, required, too_long
from remuda.kube.names import annotation_errors, dns_subdomain_problems, label_errors

from ...registry.object_meta import META_FIELDS
from .. import checks
from ..checks import Errors, Obj, sub
from ..claim_spec import claim_spec_errors
from ..resource_quantities import ZERO, amount
from .downward_api import field_ref_errors, resource_field_errors

Check = Callable[[Obj, str], Errors]

_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_MANAGED_DISK = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
_BLOB_DISK = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
MORE_THAN_ONE = "may not specify more than 1 volume type"


def needs(*fields: str) -> Check:
    """The check of a source that only requires these fields."""

    def check(source: Obj, path: str) -> Errors:
        return [required(f"{path}.{field}") for field in fields if not source.get(field)]

    return check


def mode_errors(mode: int | None, path: str) -> Errors:
    return [invalid_value(path, mode, checks.FILE_MODE)] if mode is not None and not 0 <= mode <= 0o777 else []


def _empty_dir(source: Obj, path: str) -> Errors:
    if amount(source.get("sizeLimit")) < ZERO:
        return [forbidden_field(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


def host_path(source: Obj, path: str) -> Errors:
    where = source.get("path") or ""
    if not where:
        return [required(f"{path}.path")]
    errors = no_backsteps(where, f"{path}.path")
    kind = source.get("type")
    if kind is not None and kind not in _HOST_PATH_TYPES:
        errors.append(not_supported(f"{path}.type", kind, _HOST_PATH_TYPES))
    return errors


def _git_repo(source: Obj, path: str) -> Errors:
    return needs("repository")(source, path) + local_descending(source.get("directory") or "", f"{path}.directory")


def disk(name_field: str) -> Check:
    def check(source: Obj, path: str) -> Errors:
        errors = needs(name_field)(source, path)
        partition = source.get("partition") or 0
        if not 0 <= partition <= 255:
            errors.append(invalid_value(f"{path}.partition", partition, checks.between(1, 255)))
        return errors

    return check


def _key_to_path(item: Obj, path: str) -> Errors:
    errors = needs("key", "path")(item, path)
    errors += local_not_reserved(item.get("path") or "", f"{path}.path")
    return errors + mode_errors(item.get("mode"), f"{path}.mode")


def _keyed(name_field: str) -> Check:
    def check(source: Obj, path: str) -> Errors:
        errors = needs(name_field)(source, path) + mode_errors(source.get("defaultMode"), f"{path}.defaultMode")
        for index, item in enumerate(source.get("items") or ()):
            errors += _key_to_path(item, f"{path}.items[{index}]")
        return errors

    return check


def nfs(source: Obj, path: str) -> Errors:
    errors = needs("server", "path")(source, path)
    if not (source.get("path") or "").startswith("/"):
        errors.append(invalid_value(f"{path}.path", source.get("path") or "", "must be an absolute path"))
    return errors


def _iscsi(source: Obj, path: str) -> Errors:
    errors = needs("targetPortal", "iqn")(source, path)
    name = source.get("iqn") or ""
    if name and not name.startswith(("iqn", "eui", "naa")):
        why = "must be valid format starting with iqn, eui, or naa"
        errors.append(invalid_value(f"{path}.iqn", name, why))
    errors += checks.in_range(source.get("lun") or 0, 0, 255, f"{path}.lun")
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        errors.append(required(f"{path}.secretRef"))
    return errors


def fc(source: Obj, path: str) -> Errors:
    names, ids = source.get("targetWWNs") or [], source.get("wwids") or []
    errors: Errors = []
    if not names and not ids:
        errors.append(required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both"))
    if names and ids:
        why = "targetWWNs and wwids can not be specified simultaneously"
        errors.append(invalid_value(f"{path}.targetWWNs", names, why))
    if names and source.get("lun") is None:
        errors.append(required(f"{path}.lun", "lun is required if targetWWNs is specified"))
    elif names:
        errors += checks.in_range(source["lun"], 0, 255, f"{path}.lun")
    return errors


def flex(source: Obj, path: str) -> Errors:
    errors = needs("driver")(source, path)
    for key in source.get("options") or {}:
        owner = "." + key.split("/", 1)[0].lower()
        if owner.endswith((".kubernetes.io", ".k8s.io")):
            why = "kubernetes.io and k8s.io namespaces are reserved"
            errors.append(invalid_value(f"{path}.options[{key}]", key, why))
    return errors


def csi_driver_errors(driver: str, path: str) -> Errors:
    if not driver:
        return [required(path)]
    errors = [too_long(path, 63)] if len(driver) > 63 else []
    return errors + [invalid_value(path, driver, why) for why in dns_subdomain_problems(driver.lower())]


def _csi(source: Obj, path: str) -> Errors:
    errors = csi_driver_errors(source.get("driver") or "", f"{path}.driver")
    secret = source.get("nodePublishSecretRef")
    if secret is not None:
        name = secret.get("name") or ""
        if not name:
            errors.append(required(f"{path}.nodePublishSecretRef.name"))
        else:
            errors += checks.subdomain(name, f"{path}.name")
    return errors


def _downward_file(item: Obj, path: str) -> Errors:
    errors = needs("path")(item, path) + local_not_reserved(item.get("path") or "", f"{path}.path")
    if item.get("fieldRef") is not None:
        errors += field_ref_errors(item["fieldRef"], VOLUME_FIELDS, f"{path}.fieldRef")
        if item.get("resourceFieldRef") is not None:
            why = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errors.append(invalid_value(path, "resource", why))
    elif item.get("resourceFieldRef") is not None:
        errors += resource_field_errors(item["resourceFieldRef"], f"{path}.resourceFieldRef", volume=True)
    else:
        errors.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    return errors + mode_errors(item.get("mode"), f"{path}.mode")


def _downward(source: Obj, path: str) -> Errors:
    errors = mode_errors(source.get("defaultMode"), f"{path}.defaultMode")
    for item in source.get("items") or ():
        errors += _downward_file(item, path)
    return errors


def _projected(source: Obj, path: str) -> Errors:
    errors = mode_errors(source.get("defaultMode"), f"{path}.defaultMode")
    taken: set[str] = set()

    def take(target: str, shown: str) -> Errors:
        if target in taken:
            return [invalid_value(path, shown, "conflicting duplicate paths")]
        taken.add(target)
        return []

    for index, one in enumerate(source.get("sources") or ()):
        at = f"{path}.sources[{index}]"
        for field in ("secret", "configMap"):
            keyed = one.get(field)
            if keyed is None:
                continue
            errors += needs("name")(keyed, f"{at}.{field}")
            for item_index, item in enumerate(keyed.get("items") or ()):
                errors += _key_to_path(item, f"{at}.{field}.items[{item_index}]")
                if item.get("path"):
                    errors += take(item["path"], keyed.get("name") or "")
        for item in sub(one, "downwardAPI").get("items") or ():
            errors += _downward_file(item, f"{at}.downwardAPI")
            if item.get("path"):
                errors += take(item["path"], item["path"])
        errors += _token(one.get("serviceAccountToken"), path, f"{at}.serviceAccountToken")
        if sum(value is not None for value in one.values()) > 1:
            errors.append(forbidden_field(at, "may not specify more than 1 volume type per source"))
    return errors


def _token(token: Obj | None, volume: str, path: str) -> Errors:
    if token is None:
        return []
    errors: Errors = []
    seconds = token.get("expirationSeconds") or 0
    if seconds < 600:
        errors.append(invalid_value(f"{path}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes"))
    if seconds > 1 << 32:
        why = "may not specify a duration larger than 2^32 seconds"
        errors.append(invalid_value(f"{path}.expirationSeconds", seconds, why))
    if not token.get("path"):
        return [*errors, required(f"{volume}.path")]
    return errors + local_not_reserved(token["path"], f"{volume}.path")


def template_meta_errors(meta: Obj, path: str) -> Errors:
    errors = annotation_errors(meta.get("annotations"), f"{path}.annotations")
    errors += label_errors(meta.get("labels"), f"{path}.labels")
    for field in META_FIELDS:
        if field not in ("labels", "annotations") and meta.get(field):
            errors.append(forbidden_field(f"{path}.{field}", "cannot be set"))
    return errors


def _ephemeral(source: Obj, path: str) -> Errors:
    template = source.get("volumeClaimTemplate")
    if template is None:
        return [required(f"{path}.volumeClaimTemplate")]
    at = f"{path}.volumeClaimTemplate"
    return template_meta_errors(sub(template, "metadata"), f"{at}.metadata") + claim_spec_errors(
        sub(template, "spec"), f"{at}.spec"
    )


def flocker(source: Obj, path: str) -> Errors:
    name, uuid = source.get("datasetName") or "", source.get("datasetUUID") or ""
    errors: Errors = []
    if not name and not uuid:
        errors.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        why = "datasetName and datasetUUID can not be specified simultaneously"
        errors.append(invalid_value(path, "resource", why))
    if "/" in name:
        errors.append(invalid_value(f"{path}.datasetName", name, "must not contain '/'"))
    return errors


def azure_disk(source: Obj, path: str) -> Errors:
    errors = needs("diskName", "diskURI")(source, path)
    errors += checks.supported(source.get("cachingMode"), ("None", "ReadOnly", "ReadWrite"), f"{path}.cachingMode", False)
    kind, uri = source.get("kind"), source.get("diskURI") or ""
    errors += checks.supported(kind, ("Dedicated", "Managed", "Shared"), f"{path}.kind", False)
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        errors.append(not_supported(f"{path}.diskURI", uri, (_MANAGED_DISK,)))
    elif kind is not None and kind != "Managed" and not uri.startswith("https://"):
        errors.append(not_supported(f"{path}.diskURI", uri, (_BLOB_DISK,)))
    return errors


def _image(source: Obj, path: str) -> Errors:
    return pull_policy_errors(source.get("pullPolicy") or "", f"{path}.pullPolicy")


def pull_policy_errors(policy: str, path: str) -> Errors:
    return checks.supported(policy, ("Always", "IfNotPresent", "Never"), path)


# In the order of kube-apiserver: field, the path of its own errors if that differs, the check.
_SOURCES: tuple[tuple[str, str, Check], ...] = (
    ("emptyDir", "emptyDir", _empty_dir),
    ("hostPath", "hostPath", host_path),
    ("gitRepo", "gitRepo", _git_repo),
    ("gcePersistentDisk", "persistentDisk", disk("pdName")),
    ("awsElasticBlockStore", "awsElasticBlockStore", disk("volumeID")),
    ("secret", "secret", _keyed("secretName")),
    ("nfs", "nfs", nfs),
    ("iscsi", "iscsi", _iscsi),
    ("glusterfs", "glusterfs", needs("endpoints", "path")),
    ("flocker", "flocker", flocker),
    ("persistentVolumeClaim", "persistentVolumeClaim", needs("claimName")),
    ("rbd", "rbd", needs("monitors", "image")),
    ("cinder", "cinder", needs("volumeID")),
    ("cephfs", "cephfs", needs("monitors")),
    ("quobyte", "quobyte", needs("registry", "volume")),
    ("downwardAPI", "downwardAPI", _downward),
    ("fc", "fc", fc),
    ("flexVolume", "flexVolume", flex),
    ("configMap", "configMap", _keyed("name")),
    ("azureFile", "azureFile", needs("secretName", "shareName")),
    ("vsphereVolume", "vsphereVolume", needs("volumePath")),
    ("photonPersistentDisk", "photonPersistentDisk", needs("pdID")),
    ("portworxVolume", "portworxVolume", needs("volumeID")),
    ("azureDisk", "azureDisk", azure_disk),
    ("storageos", "storageos", needs("volumeName")),
    ("projected", "projected", _projected),
    ("scaleIO", "scaleIO", needs("gateway", "system", "volumeName")),
    ("csi", "csi", _csi),
    ("ephemeral", "ephemeral", _ephemeral),
    ("image", "image", _image),
)
# The path of errors about a second source, for the two kinds that kube-apiserver spells differently there.
_SECOND = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}


def source_errors(volume: Obj, path: str, pod_name: str, is_pod: bool) -> Errors:
    errors: Errors = []
    found = 0
    for field, reported, check in _SOURCES:
        source = volume.get(field)
        if source is None:
            continue
        found += 1
        if found > 1:
            errors.append(forbidden_field(f"{path}.{_SECOND.get(field, field)}", MORE_THAN_ONE))
            continue
        if field == "image" and is_pod:
            errors += needs("reference")(source, f"{path}.image")
        errors += check(source, f"{path}.{reported}")
        name = volume.get("name") or ""
        if field == "ephemeral" and pod_name and name:
            claim = f"{pod_name}-{name}"
            for why in dns_subdomain_problems(claim):
                errors.append(invalid_value(f"{path}.name", name, f"PVC name {go_quote(claim)}: {why}"))
    if not found:
        errors.append(required(path, "must specify a volume type"))
    return errors


def volumes_errors(volumes: list[Obj], path: str, pod_name: str, is_pod: bool) -> tuple[dict[str, Obj], Errors]:
    """The valid volumes by name, and the errors of the others."""
    errors: Errors = []
    valid: dict[str, Obj] = {}
    created = {f"{pod_name}-{each.get('name')}" for each in volumes if pod_name and each.get("ephemeral") is not None}
    for index, volume in enumerate(volumes):
        at, name = f"{path}[{index}]", volume.get("name") or ""
        own = source_errors(volume, at, pod_name, is_pod)
        own += checks.dns_label(name, f"{at}.name") if name else [required(f"{at}.name")]
        if name in valid:
            own.append(duplicate(f"{at}.name", name))
        if not own:
            valid[name] = volume
        errors += own
        claim = sub(volume, "persistentVolumeClaim").get("claimName")
        if claim and claim in created:
            why = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(invalid_value(f"{at}.persistentVolumeClaim.claimName", claim, why))
    return valid, errors


# --- volume paths ---------------------------------------------------------------------------------------------------------
#
# Rules for paths inside volumes.


def no_backsteps(target: str, path: str) -> Errors:
    return [invalid_value(path, target, "must not contain '..'")] if ".." in target.split("/") else []


def local_descending(target: str, path: str) -> Errors:
    errors = [invalid_value(path, target, "must be a relative path")] if target.startswith("/") else []
    return errors + no_backsteps(target, path)


def local_not_reserved(target: str, path: str) -> Errors:
    errors = local_descending(target, path)
    if target.startswith("..") and not target.startswith("../"):
        errors.append(invalid_value(path, target, "must not start with '..'"))
    return errors
