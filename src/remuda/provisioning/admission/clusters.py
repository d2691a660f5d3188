"""Validation of clusters.provisioning.cattle.io, besides their schema.

Rules apply to changed fields only: a cluster older than a rule can still be changed elsewhere, and deleted. Roles decide
which user may write what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from posixpath import normpath
from typing import Any

from remuda.access.clusters.admission import concerns, refuse_local
from remuda.access.clusters.well_known import FLEET_LOCAL, LOCAL, is_cluster_id, is_legacy
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api.provisioning_cattle_io import GROUP, VERSION
from remuda.capi import kubernetes_versions
from remuda.kube.admission_attributes import CREATE, Attributes
from remuda.kube.errors import FieldError, forbidden_field, invalid_value, required
from remuda.kube.names import dns_label_problems, label_value_problems
from remuda.kube.objects import Key, ObjectSource, annotations_of, dig, name_of
from remuda.kube.wrangler import OWNER_NAME, OWNER_NAMESPACE
from remuda.runtime.admitted_types import AdmittedType

from ..graph.cluster_status import without_effect
from ..graph.generated import why_not_applied
from ..graph.machine_pools import why_roles_are_missing
from ..releases import catalog
from ..releases.catalog import Release, ReleaseError, Releases
from ..releases.release_data import KnownReleases
from ..well_known import MANAGEMENT_NAME

Obj = dict[str, Any]

_IMMUTABLE = "field is immutable"
_RKE, _GLOBAL = "spec.rkeConfig", "machineGlobalConfig"
_MANIFEST = ("spec", "rkeConfig", "additionalManifest")
_ROLES = ("etcdRole", "controlPlaneRole", "workerRole")
_DIRECTORIES = ("systemAgent", "provisioning", "k8sDistro")
_WITHOUT_FILES = ("proc", "sys", "dev")
_READ_BY_SHELLS = set(" \\\"'`$*?[]{}()<>|&;!#~")

# The workspace of a management Cluster by its name; None when there is no such cluster.
Workspace = Callable[[str], str | None]
# True if there is a Cluster API Cluster with this key that was not made for the cluster of that key.
Taken = Callable[[Key], bool]


def admitted(source: ObjectSource) -> tuple[AdmittedType, ...]:
    """`source` knows the existing management Clusters."""

    def workspace(name: str) -> str | None:
        found = source.get(management.GROUP, "clusters", "", name)
        return None if found is None else dig(found, "spec", "fleetWorkspaceName") or ""

    def taken(key: Key) -> bool:
        found = source.get(capi.GROUP, "clusters", *key)
        if found is None:
            return False
        said = annotations_of(found)
        return Key(said.get(OWNER_NAMESPACE) or "", said.get(OWNER_NAME) or "") != key

    rules = ProvisioningClusterRules(workspace, taken, KnownReleases(source).current)
    return (AdmittedType(GROUP, VERSION, "clusters", "Cluster", validate=rules.errors, validates_deletion=True),)


class ProvisioningClusterRules:
    def __init__(
        self,
        workspace: Workspace,
        taken: Taken = lambda key: False,
        releases: Callable[[], Releases | None] = catalog.built_in,
    ) -> None:
        """`releases` gives the release data that holds; None while it is not known."""
        self._workspace = workspace
        self._taken = taken
        self._releases = releases

    def errors(self, attributes: Attributes) -> Iterable[FieldError]:
        if attributes.namespace == FLEET_LOCAL:
            refuse_local(attributes)
        if not concerns(attributes):
            return []
        obj, old = attributes.obj or {}, attributes.old
        errors = self._name_errors(attributes) if attributes.operation == CREATE else []
        errors += _id_errors(obj, old)
        if old is None or obj.get("spec") != old.get("spec"):
            errors += _spec_errors(obj, old)
            attributes.warnings += [*_unused_fields(obj, old), *_missing_roles(obj, old), *_broken_manifest(obj, old)]
            if (releases := self._releases()) is not None:
                errors += _value_errors(obj, old, releases)
                attributes.warnings += [*_unknown_version(obj, old, releases), *_ignored_arguments(obj, old, releases)]
        return errors

    def _name_errors(self, attributes: Attributes) -> list[FieldError]:
        name, namespace = attributes.name or name_of(attributes.obj or {}), attributes.namespace
        if (name == LOCAL) != (namespace == FLEET_LOCAL):
            why = f"namespace {FLEET_LOCAL} and the name {LOCAL} are for the cluster that this server itself runs on"
            return [invalid_value("metadata.name", name, why)]
        if is_legacy(name) and self._workspace(name) != namespace:
            why = "names of the form c-xxxxx are for clusters.management.cattle.io that there are, in their workspaces"
            return [invalid_value("metadata.name", name, why)]
        if self._taken(Key(namespace, name)):
            # A cluster's objects are labelled with its name: this cluster's creator would get the other's secrets.
            why = "there is a clusters.cluster.x-k8s.io of this name already that was not made for it"
            return [invalid_value("metadata.name", name, why)]
        # The name becomes a label of all objects made for the cluster, and part of host names.
        return [invalid_value("metadata.name", name, why) for why in dns_label_problems(name)]


def _id_errors(obj: Obj, old: Obj | None) -> list[FieldError]:
    path = f"metadata.annotations[{MANAGEMENT_NAME}]"
    wanted, before = (annotations_of(each or {}).get(MANAGEMENT_NAME, "") for each in (obj, old))
    if wanted == before:
        return []
    if before:
        return [forbidden_field(path, _IMMUTABLE)]
    if is_legacy(wanted) or not is_cluster_id(wanted):
        return [invalid_value(path, wanted, "must begin with c- and be a lower-case DNS label, such as c-m-bcdfg245")]
    return []


def _spec_errors(obj: Obj, old: Obj | None) -> list[FieldError]:
    rke, before = dig(obj, "spec", "rkeConfig"), dig(old, "spec", "rkeConfig")
    if old is not None and (rke is None) != (before is None):
        why = "can't be taken away" if rke is None else "can't be added to a cluster that is there already"
        return [forbidden_field(_RKE, f"{why}: make another cluster")]
    if not isinstance(rke, dict):
        return []
    return [
        *_version_errors(obj, old),
        *_pool_errors(_items(rke, "machinePools")),
        *_file_errors(_items(rke, "machineSelectorFiles")),
        *directory_errors(rke, before if old is not None else None, f"{_RKE}.dataDirectories"),
    ]


def _unused_fields(obj: Obj, old: Obj | None) -> list[str]:
    """Warnings for new or changed fields that are accepted and not used."""
    before = {path: value for path, _, value in without_effect(old)}
    return [f"{path} has no effect: {why}" for path, why, value in without_effect(obj) if before.get(path) != value]


def _unknown_version(obj: Obj, old: Obj | None, releases: Releases) -> list[str]:
    """A warning for a new version that there is no release data of: its images may not exist."""
    version = str(dig(obj, "spec", "kubernetesVersion") or "")
    if version == dig(old, "spec", "kubernetesVersion") or not isinstance(dig(obj, "spec", "rkeConfig"), dict):
        return []
    try:
        release = releases.release(version)
    except ReleaseError:
        return []
    if release.known:
        return []
    known = ", ".join(releases.versions(release.runtime))
    return [f"spec.kubernetesVersion: {version} is not a known version, and may not exist (known: {known}; remuda versions)"]


def _value_errors(obj: Obj, old: Obj | None, releases: Releases) -> list[FieldError]:
    """Errors for new or changed arguments with a value that the version's servers would not start with."""
    release = _release(obj, releases)
    if release is None:
        return []
    found = []
    for path, name, value in _new_arguments(obj, old):
        if unknown := release.refused_values(name, value):
            known = ", ".join(release.known_values(name))
            why = f"{release.version} does not start with {', '.join(unknown)}; known values are {known}"
            found.append(invalid_value(f"{path}.{name}", value, why))
    return found


def _ignored_arguments(obj: Obj, old: Obj | None, releases: Releases) -> list[str]:
    """Warnings for new or changed arguments that have no effect: a user should not wait for it."""
    release = _release(obj, releases)
    if release is None:
        return []
    new = _new_arguments(obj, old)
    return [f"{path}.{name} {why}" for path, name, value in new if (why := _why_doubtful(release, releases, path, name, value))]


def _release(obj: Obj, releases: Releases) -> Release | None:
    try:
        return releases.release(str(dig(obj, "spec", "kubernetesVersion") or ""))
    except ReleaseError:
        return None


def _new_arguments(obj: Obj, old: Obj | None) -> list[tuple[str, str, Any]]:
    """Those that are new or changed; all of them for another version."""
    same = dig(obj, "spec", "kubernetesVersion") == dig(old, "spec", "kubernetesVersion")
    before = {(path, name): value for path, name, value in _arguments(old)} if same else {}
    return [each for each in _arguments(obj) if before.get(each[:2]) != each[2]]


def _why_doubtful(release: Release, releases: Releases, path: str, name: str, value: Any) -> str:
    if why := release.why_ignored(name, value):
        partly = catalog.is_usable(value) and release.without_fatal(name, value) is not None and release.fatal_values(name, value)
        return f"is used only in part: {why}" if partly else f"has no effect: {why}"
    if value and path == f"{_RKE}.{_GLOBAL}" and release.is_for_servers_only(name, releases):
        return f"has no effect on workers: only servers of {release.runtime.name} have it"
    if release.known and (unknown := release.unknown_values(name, value)):
        known = ", ".join(release.known_values(name))
        return f"has a value that {release.version} may not know: {', '.join(unknown)}; known ones are {known}"
    return ""


def _arguments(obj: Obj | None) -> Iterable[tuple[str, str, Any]]:
    """All arguments of a cluster: the path of their place, name, value."""
    rke = dig(obj, "spec", "rkeConfig")
    rke = rke if isinstance(rke, dict) else {}
    places = [(_GLOBAL, rke.get(_GLOBAL))]
    places += [
        (f"machineSelectorConfig[{i}].config", each.get("config")) for i, each in enumerate(_items(rke, "machineSelectorConfig"))
    ]
    for path, found in places:
        for name, value in found.items() if isinstance(found, dict) else ():
            yield f"{_RKE}.{path}", name, value


def _items(obj: Obj, field: str) -> list[Obj]:
    found = obj.get(field)
    return [each if isinstance(each, dict) else {} for each in found] if isinstance(found, list) else []


def _version_errors(obj: Obj, old: Obj | None) -> list[FieldError]:
    path, version = "spec.kubernetesVersion", dig(obj, "spec", "kubernetesVersion")
    if not version:
        return [required(path, "a cluster with rkeConfig needs a version, such as v1.34.1+rke2r1")]
    if version == dig(old, "spec", "kubernetesVersion"):
        return []
    try:
        if not str(version).startswith("v"):
            raise kubernetes_versions.VersionError(version)
        kubernetes_versions.parse(str(version)[1:])
    except kubernetes_versions.VersionError:
        return [invalid_value(path, version, "must be a version such as v1.34.1+rke2r1")]
    return []


def _pool_errors(pools: list[Obj]) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, pool in enumerate(pools):
        path = f"{_RKE}.machinePools[{index}]"
        name = pool.get("name") or ""
        if not any(pool.get(role) is True for role in _ROLES):
            errors.append(required(path, f"pool {name} needs at least one of {', '.join(_ROLES)}"))
        errors += [invalid_value(f"{path}.name", name, why) for why in label_value_problems(str(name))]
    return errors


def _missing_roles(obj: Obj, old: Obj | None) -> list[str]:
    """A warning for new or changed pools without a role that a cluster needs: hosts with it have to be registered."""
    pools, before = (dig(each, "spec", "rkeConfig", "machinePools") or () for each in (obj, old))
    why = why_roles_are_missing(pools)
    return [f"{_RKE}.machinePools: {why}"] if why and why != why_roles_are_missing(before) else []


def _broken_manifest(obj: Obj, old: Obj | None) -> list[str]:
    """A warning for a new or changed additionalManifest that the cluster can't apply."""
    text, before = (dig(each, *_MANIFEST) for each in (obj, old))
    if not isinstance(text, str) or text == before:
        return []
    why = why_not_applied(text)
    return [f"spec.{'.'.join(_MANIFEST[1:])} can't be applied: {why}"] if why else []


def _file_errors(selections: list[Obj]) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, selection in enumerate(selections):
        for place, source in enumerate(_items(selection, "fileSources")):
            path = f"{_RKE}.machineSelectorFiles[{index}].fileSources[{place}]"
            named = [kind for kind in ("secret", "configMap") if dig(source, kind, "name")]
            if not named:
                errors.append(required(path, "exactly one of secret and configMap must be set"))
            elif len(named) > 1:
                errors.append(forbidden_field(path, "exactly one of secret and configMap must be set"))
    return errors


def directory_errors(config: Obj, before: Obj | None, path: str) -> list[FieldError]:
    """Errors in the data directories of the configuration at `path`; `before` is the one it replaces."""
    now, old = (_directories(each) for each in (config, before or {}))
    if before is not None:
        return [forbidden_field(f"{path}.{field}", _IMMUTABLE) for field in _DIRECTORIES if now[field] != old[field]]
    errors = [
        invalid_value(f"{path}.{field}", value, why) for field, value in now.items() if value and (why := _place_problem(value))
    ]
    return errors or _nested(path, now)


def _place_problem(value: str) -> str:
    if not value.startswith("/") or value == "/" or value.startswith("//") or normpath(value) != value.rstrip("/"):
        return "must be an absolute path without . or .. in it"
    if value.split("/")[1] in _WITHOUT_FILES:
        return "must be where files can be kept"
    # The value goes into scripts and units.
    if not value.isprintable() or set(value) & _READ_BY_SHELLS:
        return "must not have blanks, quotes, variables or other signs in it that a shell reads"
    return ""


def _directories(rke: Obj) -> dict[str, str]:
    found = {field: dig(rke, "dataDirectories", field) for field in _DIRECTORIES}
    return {field: value if isinstance(value, str) else "" for field, value in found.items()}


def _nested(path: str, found: dict[str, str]) -> list[FieldError]:
    """Errors for directories inside one another: operations on one affect the other."""
    said = {field: value.rstrip("/") for field, value in found.items() if value}
    return [
        invalid_value(f"{path}.{field}", found[field], f"must not be in {path}.{other}, which is {found[other]}")
        for field, value in said.items()
        for other, outer in said.items()
        if field != other and f"{value}/".startswith(f"{outer}/") and (value != outer or field > other)
    ]
