"""The hand-offs of a Cluster with its infrastructure and its control plane, by contract.

Both ways: the provider's object gets the Cluster as owner and the cluster's label, which is what it waits for; and the Cluster
takes over what the provider reports as made. What was made once stays made, even if a provider reports otherwise later.
"""

from __future__ import annotations

from typing import Any

from remuda.api.cluster_x_k8s_io import API_VERSION
from remuda.kube.condition_summaries import LegacySum
from remuda.kube.conditions import FALSE, INFO, LEGACY, TRUE, is_true, with_legacy
from remuda.kube.errors import ApiError, go_quote
from remuda.kube.objects import (
    GroupVersionKind,
    Key,
    is_being_deleted,
    labels_of,
    metadata,
    name_of,
    owner_references_of,
    resource_version_of,
    uid_of,
    with_path,
    without_path,
)
from remuda.kube.owners import with_owner
from remuda.kube.waits import Actor, Code, Wait
from remuda.runtime import Result, Retry

from .. import contracts
from ..contracts import NoContract
from ..controller_context import Core
from ..external_objects import External
from ..phases import Stuck
from ..provider_conditions import legacy_mirrored
from ..well_known import CLUSTER_NAME
from .scope import CONTROLLER, ClusterScope, Referred

Obj = dict[str, Any]

PROVISIONED, INITIALIZED = "infrastructureProvisioned", "controlPlaneInitialized"
INITIALIZED_CONDITION = "ControlPlaneInitialized"
# The limits of a Cluster's schema; a provider that reports more must not make its status unwritable.
_LONGEST_FAILURE, _MOST_DOMAINS = 10240, 100
_LONGEST_HOST, _HIGHEST_PORT = 512, 65535


async def infrastructure(core: Core, scope: ClusterScope) -> Result | None:
    if not scope.infra.ref:
        if not scope.deleting:
            # There is no provider to wait for.
            scope.cluster = _with_flag(scope.cluster, PROVISIONED)
            scope.cluster = with_legacy(scope.cluster, "InfrastructureReady", TRUE, now=scope.now)
        return None
    found = await _read(core, scope, scope.infra)
    if found is None:
        return _absent(scope, scope.infra, "provisioned" if scope.initialized(PROVISIONED) else "")
    provisioned = contracts.provisioned(found.obj, found.contract)
    _mirror(scope, "InfrastructureReady", found.obj, provisioned, "WaitingForInfrastructure")
    if is_being_deleted(found.obj):
        return None
    if not provisioned and not scope.initialized(PROVISIONED):
        return Result(waits=(_wait(scope, scope.infra, Code.PROVISIONING, "it is not provisioned yet"),))
    _copy_endpoint(scope, found.obj)
    domains = contracts.failure_domains(found.obj, found.contract)[:_MOST_DOMAINS]
    path = ("status", "failureDomains")
    scope.cluster = with_path(scope.cluster, path, domains) if domains else without_path(scope.cluster, path)
    _reach(scope, PROVISIONED, "InfrastructureReady", "InfrastructureProvisioned")
    return None


async def control_plane(core: Core, scope: ClusterScope) -> Result | None:
    if not scope.control_plane.ref:
        return None
    found = await _read(core, scope, scope.control_plane)
    if found is None:
        return _absent(scope, scope.control_plane, "initialized" if scope.initialized(INITIALIZED) else "")
    initialized = contracts.control_plane_initialized(found.obj, found.contract)
    _mirror(scope, "ControlPlaneReady", found.obj, initialized, "WaitingForControlPlane")
    if is_being_deleted(found.obj):
        return None
    if not is_true(scope.cluster, INITIALIZED_CONDITION, LEGACY):
        _tell_initialized(scope, initialized)
    if not initialized and not scope.initialized(INITIALIZED):
        return Result(waits=(_wait(scope, scope.control_plane, Code.PROVISIONING, "it is not initialized yet"),))
    _copy_endpoint(scope, found.obj)
    _reach(scope, INITIALIZED, "ControlPlaneInitialized", "ControlPlaneInitialized")
    return None


def _tell_initialized(scope: ClusterScope, initialized: bool) -> None:
    if initialized:
        scope.cluster = with_legacy(scope.cluster, INITIALIZED_CONDITION, TRUE, now=scope.now)
        return
    scope.cluster = with_legacy(
        scope.cluster,
        INITIALIZED_CONDITION,
        FALSE,
        "WaitingForControlPlaneProviderInitialized",
        "Waiting for control plane provider to indicate the control plane has been initialized",
        INFO,
        now=scope.now,
    )


# --- reading ------------------------------------------------------------------------------------------------------------------


async def _read(core: Core, scope: ClusterScope, referred: Referred) -> External | None:
    """The object, as ours; None (and why) when there is none or it can't be read."""
    namespace = scope.key.namespace
    try:
        found = await core.externals.get(referred.ref, namespace)
    except NoContract as error:
        # A kind without a CRD has no objects; a Cluster that goes need not wait for one.
        referred.missing = scope.deleting and not error.defined
        referred.trouble = str(error)
        return None
    except Retry as error:
        referred.trouble = str(error)
        return None
    if found is None:
        referred.missing = True
        return None
    _note_failures(scope, found.obj)
    referred.found = found
    try:
        referred.found = found = await _own(core, scope, found)
    except ApiError as error:
        if error.is_not_found:
            referred.found, referred.missing = None, True
            return None
        if 400 <= error.code < 500 and not error.is_conflict and error.code != 429:
            # Refused, and it will be refused until an object or a permission changes: users of the Cluster should see that.
            referred.found, referred.trouble = None, error.message
        raise
    return found


def _absent(scope: ClusterScope, referred: Referred, once: str) -> Result | None:
    """`once`: the state that it had reached before it went missing, if any."""
    if referred.missing and scope.deleting:
        return None
    if not referred.missing:
        raise Stuck(_wait(scope, referred, Code.REFERENCE, referred.trouble))
    if once:
        raise Stuck(_wait(scope, referred, Code.REFERENCE, f"it has been deleted after being {once}"))
    return Result(waits=(_wait(scope, referred, Code.REFERENCE, "it does not exist"),))


def _wait(scope: ClusterScope, referred: Referred, code: Code, evidence: str) -> Wait:
    actor = Actor.USER if code is Code.REFERENCE else Actor.PROVIDER
    return Wait(code, scope.ref, actor, referred.named(scope.key.namespace), evidence)


# --- writing to the provider's object ---------------------------------------------------------------------------------------


async def _own(core: Core, scope: ClusterScope, found: External) -> External:
    """The object with the Cluster as an owner and with its label, written if it had not been so."""
    patch = _claim(found.obj, scope.cluster)
    if patch is None:
        return found
    name, namespace = Key.of(found.obj).name, scope.key.namespace
    try:
        written = await core.client.patch(found.resource, name, patch, namespace)
    except ApiError as error:
        if not error.is_conflict:
            raise
        # The faster writer may have changed the owners, too, and its owners must stay.
        live = await core.client.get(found.resource, name, namespace)
        patch = _claim(live, scope.cluster)
        written = live if patch is None else await core.client.patch(found.resource, name, patch, namespace)
    core.wrote(CONTROLLER, scope.key, found.informer, written)
    return found._replace(obj=written)


def _claim(obj: Obj, cluster: Obj) -> Obj | None:
    """The patch that makes `obj` the Cluster's; None when it is."""
    name = name_of(cluster)
    changes: Obj = {}
    if labels_of(obj).get(CLUSTER_NAME) != name:
        changes["labels"] = {CLUSTER_NAME: name}
    owner = {"apiVersion": API_VERSION, "kind": "Cluster", "name": name, "uid": uid_of(cluster)}
    if not any(_is(ref, owner) for ref in owner_references_of(obj)):
        # Not as its controller: another manager may control it.
        changes["ownerReferences"] = metadata(with_owner(obj, owner))["ownerReferences"]
        changes["resourceVersion"] = resource_version_of(obj)
    return {"metadata": changes} if changes else None


def _is(reference: Obj, owner: Obj) -> bool:
    return not reference.get("controller") and all(reference.get(key) == value for key, value in owner.items())


# --- taking over ------------------------------------------------------------------------------------------------------------


def _note_failures(scope: ClusterScope, obj: Obj) -> None:
    reason, message = contracts.failure_reason(obj), contracts.failure_message(obj)
    if reason:
        scope.cluster = with_path(scope.cluster, ("status", "deprecated", "v1beta1", "failureReason"), reason)
    if message:
        kind = GroupVersionKind.of(obj)
        text = (
            f"Failure detected from referenced resource {kind.api_version}, Kind={kind.kind} "
            f"with name {go_quote(name_of(obj))}: {message}"
        )
        path = ("status", "deprecated", "v1beta1", "failureMessage")
        scope.cluster = with_path(scope.cluster, path, text[:_LONGEST_FAILURE])


def _mirror(scope: ClusterScope, condition: str, obj: Obj, done: bool, waiting: str) -> None:
    fallback = LegacySum(TRUE) if done else LegacySum(FALSE, waiting, "", INFO)
    if scope.deleting:
        fallback = LegacySum(FALSE, "Deleting", "", INFO)
    found = legacy_mirrored(obj, fallback)
    scope.cluster = with_legacy(
        scope.cluster, condition, found.status, found.reason, found.message, found.severity, now=scope.now
    )


def _copy_endpoint(scope: ClusterScope, obj: Obj) -> None:
    if contracts.endpoint(scope.cluster).valid:
        return
    host, port = contracts.endpoint(obj)
    if len(host) > _LONGEST_HOST or not 0 <= port <= _HIGHEST_PORT:
        return
    made = {key: value for key, value in (("host", host), ("port", port)) if value}
    path = ("spec", "controlPlaneEndpoint")
    scope.cluster = with_path(scope.cluster, path, made) if made else without_path(scope.cluster, path)


def _reach(scope: ClusterScope, flag: str, event: str, words: str) -> None:
    if scope.initialized(flag):
        return
    scope.events.append((event, f"Cluster {scope.key.name} {words} is now True"))
    scope.cluster = _with_flag(scope.cluster, flag)


def _with_flag(cluster: Obj, flag: str) -> Obj:
    return with_path(cluster, ("status", "initialization", flag), True)
