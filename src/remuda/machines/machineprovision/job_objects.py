"""The objects of one Job: the Secret that its program writes, an account that may do that and nothing else, the Job. Pure.

The infrastructure machine owns them all, and they are deleted with it. If Jobs are pods, the program's inputs are mounted from
Secrets beside it. If they are processes of this server (:mod:`..runner`), credentials, files and the script are never in the
machine's namespace: users who may create pods there have no access to them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from remuda.access.settings.settings import MACHINE_REPOSITORY
from remuda.kube.builtin_resources import ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.objects import (
    GroupVersion,
    GroupVersionResource,
    dig,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    uid_of,
)
from remuda.kube.owners import controller_of, reference
from remuda.kube.wrangler import safe_concat
from remuda.provisioning.well_known import BACKUP

from .job_arguments import IN_A_POD, DriverFacts, OwningCluster, arguments
from .well_known import (
    CAPI_MACHINE,
    EXTENSION_ROLE,
    INFRA_GROUP,
    INFRA_KIND,
    INFRA_NAME,
    INFRA_REMOVE,
    INFRA_VERSION,
    JOBS,
    LOCAL_RUNNER,
    STATE_TYPE,
    certificates_name,
    environment_name,
    job_name,
    state_name,
)

Obj = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"
_USER = 1000
_CERTIFICATES = "/etc/rancher/ssl"
# The rights that a pod may have at most under the Pod Security level "restricted".
_SECURITY: Obj = {
    "runAsUser": _USER,
    "runAsGroup": _USER,
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
# Where our own image's program writes, keys among it: so not to a node's disk.
_SCRATCH: Mapping[str, str] = {"home": "/home/machine", "tmp": "/tmp"}
_SCRATCH_SIZE = "256Mi"
# A create is tried once: a failed machine is deleted, and another takes its place. A removal must succeed.
CREATE_RETRIES, REMOVE_RETRIES = 0, 3
# Fields that an API server adds to a pod's template.
_DEFAULTED = frozenset({"dnsPolicy", "schedulerName", "securityContext", "serviceAccount", "terminationGracePeriodSeconds"})
_DEFAULTED_IN_CONTAINER = frozenset({"resources", "terminationMessagePath", "terminationMessagePolicy"})


class JobObject(NamedTuple):
    resource: GroupVersionResource
    obj: Obj


@dataclass(frozen=True, slots=True)
class JobRuntime:
    """The way in which Jobs run: as processes of this server (`local`), or as pods with an image. `own`: the image is ours, so
    its writable paths are known, and the rest of it can be read-only."""

    local: bool = True
    image: str = ""
    own: bool = False
    pull_policy: str = "Always"
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobInputs:
    """The program's inputs besides its arguments: environment, script (the name of its Secret), certificates by name."""

    environment: Mapping[str, str] = field(default_factory=dict)
    script: str = ""
    certificates: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One Job as it is wanted."""

    infra: Obj
    machine: Obj | None
    facts: DriverFacts
    belonging: OwningCluster
    removing: bool
    running: JobRuntime = JobRuntime()
    contents: JobInputs = JobInputs()
    # The values of the machine's secret fields.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


def job_labels(infra: Obj, *, removing: bool) -> dict[str, str]:
    group, version = GroupVersion.parse(infra["apiVersion"])
    return {
        INFRA_GROUP: group,
        INFRA_VERSION: version,
        INFRA_KIND: infra["kind"],
        INFRA_NAME: name_of(infra),
        INFRA_REMOVE: "true" if removing else "false",
        CAPI_MACHINE: labels_of(infra).get(CAPI_MACHINE) or "",
    }


def prepared(plan: JobPlan) -> list[JobObject]:
    """All that has to be there before the Job is, in the order in which it is made."""
    infra, name = plan.infra, job_name(name_of(plan.infra))
    state = {"resourceNames": [state_name(name_of(infra))], "verbs": ["get", "update"]}
    made = [
        JobObject(SECRETS, {**_object("v1", "Secret", state_name(name_of(infra)), infra, {BACKUP: "true"}), "type": STATE_TYPE}),
        JobObject(SERVICE_ACCOUNTS, _object("v1", "ServiceAccount", name, infra)),
        JobObject(
            ROLES,
            {**_object(f"{_RBAC}/v1", "Role", name, infra), "rules": [{"apiGroups": [""], "resources": ["secrets"], **state}]},
        ),
        JobObject(ROLE_BINDINGS, _binding(infra, name, name)),
    ]
    return made if plan.running.local else [*made, *_mounted(plan)]


def _mounted(plan: JobPlan) -> list[JobObject]:
    infra, name = plan.infra, job_name(name_of(plan.infra))
    made = [
        JobObject(ROLE_BINDINGS, _binding(infra, safe_concat(name, "extension"), EXTENSION_ROLE)),
        JobObject(SECRETS, _secret(infra, environment_name(name_of(infra)), plan.contents.environment, {BACKUP: "true"})),
    ]
    _, files = _arguments(plan)
    if files:
        made.append(JobObject(SECRETS, _secret(infra, name, files)))
    if plan.contents.certificates:
        made.append(JobObject(SECRETS, _secret(infra, certificates_name(name_of(infra)), plan.contents.certificates)))
    return made


def helpers(infra: Obj) -> list[tuple[GroupVersionResource, str]]:
    """The objects that may have been made besides the Job and the state, by name: to be deleted with the Job."""
    name = job_name(name_of(infra))
    return [
        (ROLE_BINDINGS, name),
        (ROLE_BINDINGS, safe_concat(name, "extension")),
        (ROLES, name),
        (SERVICE_ACCOUNTS, name),
        (SECRETS, environment_name(name_of(infra))),
        (SECRETS, name),
        (SECRETS, certificates_name(name_of(infra))),
    ]


def job(plan: JobPlan) -> JobObject:
    infra = plan.infra
    labels = job_labels(infra, removing=plan.removing)
    spec: Obj = {
        "backoffLimit": REMOVE_RETRIES if plan.removing else CREATE_RETRIES,
        "template": {"metadata": {"labels": labels}, "spec": _pod(plan)},
    }
    if plan.running.local:
        spec["managedBy"] = LOCAL_RUNNER
    return JobObject(JOBS, {**_object("batch/v1", "Job", job_name(name_of(infra)), infra, labels), "spec": spec})


def _pod(plan: JobPlan) -> Obj:
    name = job_name(name_of(plan.infra))
    told, files = _arguments(plan)
    container: Obj = {"name": "machine", "image": plan.running.image, "args": told}
    pod: Obj = {"restartPolicy": "Never", "serviceAccountName": name, "containers": [container]}
    if plan.running.local:
        return pod
    # Otherwise users who may create Services could set variables of the program, some of which are driver options.
    pod["enableServiceLinks"] = False
    container["imagePullPolicy"] = plan.running.pull_policy
    container["envFrom"] = [{"secretRef": {"name": environment_name(name_of(plan.infra))}}]
    container["securityContext"] = {**_SECURITY, "readOnlyRootFilesystem": True} if plan.running.own else dict(_SECURITY)
    volumes, mounts = _volumes(plan, files)
    if volumes:
        pod["volumes"], container["volumeMounts"] = volumes, sorted(mounts, key=lambda mount: str(mount["mountPath"]))
    if plan.running.pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in plan.running.pull_secrets]
    return pod


def _volumes(plan: JobPlan, files: Mapping[str, str]) -> tuple[list[Obj], list[Obj]]:
    infra, volumes, mounts = name_of(plan.infra), list[Obj](), list[Obj]()
    if not plan.removing and plan.contents.script:
        volumes.append({"name": "bootstrap", "secret": {"secretName": plan.contents.script, "defaultMode": 0o777}})
        mounts.append({"name": "bootstrap", "mountPath": IN_A_POD.script.rpartition("/")[0], "readOnly": False})
    if files:
        items = [{"key": key, "path": key} for key in sorted(files)]
        volumes.append({"name": "machine-files", "secret": {"secretName": job_name(infra), "items": items, "defaultMode": 0o644}})
        mounts.append({"name": "machine-files", "mountPath": IN_A_POD.files, "readOnly": True})
    if plan.contents.certificates:
        volumes.append({"name": "machine-certs", "secret": {"secretName": certificates_name(infra), "defaultMode": 0o444}})
        for key in plan.contents.certificates:
            mounts.append({"name": "machine-certs", "mountPath": f"{_CERTIFICATES}/{key}", "subPath": key, "readOnly": True})
    for name, path in _SCRATCH.items() if plan.running.own else ():
        volumes.append({"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": _SCRATCH_SIZE}})
        mounts.append({"name": name, "mountPath": path})
    return volumes, mounts


def _arguments(plan: JobPlan) -> tuple[list[str], dict[str, str]]:
    return arguments(plan.infra, plan.machine, plan.facts, plan.belonging, removing=plan.removing, secrets=plan.secrets)


def _object(api_version: str, kind: str, name: str, infra: Obj, labels: Mapping[str, str] | None = None) -> Obj:
    meta: Obj = {"name": name, "namespace": namespace_of(infra), "ownerReferences": [reference(infra, controller=True)]}
    if labels:
        meta["labels"] = dict(labels)
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}


def _secret(infra: Obj, name: str, content: Mapping[str, str], labels: Mapping[str, str] | None = None) -> Obj:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in content.items()}
    return {**_object("v1", "Secret", name, infra, labels), "type": "Opaque", "data": data}


def _binding(infra: Obj, name: str, role: str) -> Obj:
    account = {"kind": "ServiceAccount", "name": job_name(name_of(infra)), "namespace": namespace_of(infra)}
    ref = {"apiGroup": _RBAC, "kind": "Role", "name": role}
    return {**_object(f"{_RBAC}/v1", "RoleBinding", name, infra), "roleRef": ref, "subjects": [account]}


# --- found objects ------------------------------------------------------------------------------------------------------------


def is_controlled_by(obj: Obj, infra: Obj) -> bool:
    """Whether this machine controls it; a new machine of the same name is another."""
    return uid_of(infra) != "" and (controller_of(obj) or {}).get("uid") == uid_of(infra)


def is_pods(found: Obj) -> bool:
    """True if Kubernetes makes pods for a Job; other Jobs are processes of this server."""
    return not dig(found, "spec", "managedBy")


def runs_ours(found: Obj) -> bool:
    """True if a Job runs `remuda provision`; other images may have a driver of the same name, but not ours."""
    containers = dig(found, "spec", "template", "spec", "containers") or [{}]
    return not is_pods(found) or f"/{MACHINE_REPOSITORY}:" in f"/{containers[0].get('image') or ''}"


def correction(found: Obj, wanted: Obj) -> Obj | None:
    """A merge patch from the found object to the wanted one, {} when they agree; None when it has another owner or can't be
    changed, and has to be replaced. For a state only its owner counts, since the program writes it."""
    same = all(found.get(part) == wanted.get(part) for part in ("type", "roleRef"))
    if not same or found.get("immutable") or owner_references_of(found) != owner_references_of(wanted):
        return None
    patch: Obj = {part: wanted[part] for part in ("rules", "subjects") if part in wanted and found.get(part) != wanted[part]}
    if "data" in wanted and (found.get("data") or {}) != wanted["data"]:
        patch["data"] = {**dict.fromkeys(found.get("data") or {}), **wanted["data"]}
    return patch


def is_alike(found: Obj, wanted: Obj) -> bool:
    """True if a Job is the wanted one, no matter who made it: nothing of it differs, and nothing was added that would run."""
    pod, expected = dig(found, "spec", "template", "spec") or {}, dig(wanted, "spec", "template", "spec") or {}
    containers = pod.get("containers") or [{}]
    added = pod.keys() - expected.keys() - _DEFAULTED
    added |= containers[0].keys() - expected["containers"][0].keys() - _DEFAULTED_IN_CONTAINER
    if added or containers[0].get("securityContext") != expected["containers"][0].get("securityContext"):
        return False
    return owner_references_of(found) == owner_references_of(wanted) and _holds(found, wanted)


def _holds(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and _holds(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return _same_items(found, wanted)
    return bool(found == wanted)


def _same_items(found: Any, wanted: Sequence[Any]) -> bool:
    return isinstance(found, list) and len(found) == len(wanted) and all(map(_holds, found, wanted))
