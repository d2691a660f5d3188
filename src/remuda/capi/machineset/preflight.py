"""Preflight checks before a set makes machines: the control plane must exist, must not be upgrading, and versions must fit.

The checks are pure; :class:`PreflightChecks` reads their inputs. The words are what users see in conditions.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Any, NamedTuple

from remuda.kube.errors import go_quote
from remuda.kube.objects import GroupVersionKind, Key, annotations_of, dig, namespace_of
from remuda.kube.waits import Actor, Code, Wait
from remuda.runtime import Informer, Result, Watch, changed

from .. import contracts
from ..contracts import NoContract
from ..controller_context import BY_CLUSTER, Core
from ..external_objects import not_there
from ..kubernetes_versions import UNORDERED, KubernetesVersion, compare, parse_tolerant
from ..phases import Stuck
from ..well_known import SKIP_PREFLIGHT_CHECKS
from .scope import NAME, MachineSetScope

Obj = dict[str, Any]

ALL = "All"
STABLE = "ControlPlaneIsStable"
KUBERNETES_SKEW = "KubernetesVersionSkew"
KUBEADM_SKEW = "KubeadmVersionSkew"

_MINORS_BEHIND = 3
_KUBEADM = ("bootstrap.cluster.x-k8s.io", "KubeadmConfigTemplate")


class IncomparableVersion(Exception):
    """A version that can't be compared: the check has no result."""


def skipped(machine_set: Obj, bootstrap_template: Obj | None) -> frozenset[str]:
    """The checks that an annotation of the set, or else of its bootstrap template, skips."""
    listed = annotations_of(machine_set).get(SKIP_PREFLIGHT_CHECKS)
    if not listed and bootstrap_template is not None:
        listed = annotations_of(bootstrap_template).get(SKIP_PREFLIGHT_CHECKS)
    return frozenset(check.strip() for check in listed.split(",")) if listed else frozenset()


def problems(machine_set: Obj, control_plane: Obj, checks: Collection[str], left_out: Collection[str]) -> list[str]:
    """The reasons against new machines, one sentence each. Raises Unreadable."""
    wanted = contracts.spec_version(control_plane)
    if not wanted or ALL in left_out:
        return []  # a control plane that manages no version can't be checked
    name = Key.of(control_plane)
    control_plane_version = _read(wanted, f"failed to parse version {go_quote(wanted)} of ControlPlane {name}")

    def runs(check: str) -> bool:
        return (ALL in checks or check in checks) and check not in left_out

    found: list[str] = []
    if runs(STABLE) and (unstable := _unstable(control_plane, control_plane_version)):
        found.append(unstable)
    own = dig(machine_set, "spec", "template", "spec", "version")
    if not own:
        return found
    version = _read(own, f"failed to parse version {go_quote(own)} of MachineSet {Key.of(machine_set)}")
    if runs(KUBERNETES_SKEW) and (skewed := _kubernetes_skew(version, control_plane_version)):
        found.append(skewed)
    if runs(KUBEADM_SKEW) and (skewed := _kubeadm_skew(machine_set, version, control_plane_version)):
        found.append(skewed)
    return found


def _read(text: str, otherwise: str) -> KubernetesVersion:
    version = parse_tolerant(text)
    if version is None:
        raise IncomparableVersion(f"{otherwise}: it is no semantic version")
    return version


def _failed(check: str) -> str:
    return f"({go_quote(check)} preflight check failed)"


def _unstable(control_plane: Obj, wanted: KubernetesVersion) -> str:
    who = f"{control_plane.get('kind')} {Key.of(control_plane)}"
    running = [each["version"] for each in contracts.status_versions(control_plane)]
    if not running:
        return f"{who} is provisioning {_failed(STABLE)}"
    check = f"failed to perform {go_quote(STABLE)} preflight check: failed to check if the {who} is upgrading"
    for version in running:
        found = _read(str(version), f"{check}: failed to parse control plane status version {go_quote(str(version))}")
        if compare(wanted, found) in (1, UNORDERED):
            return f"{who} is upgrading {_failed(STABLE)}"
    return ""


def _pair(version: KubernetesVersion, control_plane: KubernetesVersion) -> str:
    return f"MachineSet version ({version}) and ControlPlane version ({control_plane}) do not conform to"


def _kubernetes_skew(version: KubernetesVersion, control_plane: KubernetesVersion) -> str:
    policy = f"{_pair(version, control_plane)} the kubernetes version skew policy as MachineSet version is"
    if version.minor > control_plane.minor:
        return f"{policy} higher than ControlPlane version {_failed(KUBERNETES_SKEW)}"
    if version.minor < control_plane.minor - _MINORS_BEHIND:
        return (
            f"{policy} more than {_MINORS_BEHIND} minor versions older than the ControlPlane version {_failed(KUBERNETES_SKEW)}"
        )
    return ""


def _kubeadm_skew(machine_set: Obj, version: KubernetesVersion, control_plane: KubernetesVersion) -> str:
    ref = dig(machine_set, "spec", "template", "spec", "bootstrap", "configRef") or {}
    if (ref.get("apiGroup"), ref.get("kind")) != _KUBEADM or version.minor == control_plane.minor:
        return ""
    return (
        f"{_pair(version, control_plane)} kubeadm version skew policy as kubeadm only supports joining with the same "
        f"major+minor version as the control plane {_failed(KUBEADM_SKEW)}"
    )


# --- preflight gate -------------------------------------------------------------------------------------------------------
#
# The gate of one set: reads the control plane and the bootstrap template, and runs the checks.
#
# A set that may not make machines is reconciled again when its control plane's versions change: the gate watches the kinds of
# control planes that it meets.

_BY_CONTROL_PLANE = "control plane"


RECHECK_SECONDS = 15.0


class PreflightVerdict(NamedTuple):
    """No messages: go on. `broken` when the checks could not run."""

    messages: tuple[str, ...] = ()
    broken: bool = False

    @property
    def joined(self) -> str:
        return "; ".join(self.messages)

    def holds_up(self, scope: MachineSetScope) -> Result:
        """The result of a phase that may not go on. Raises Stuck when it could not be checked."""
        wait = Wait(Code.PREFLIGHT, scope.ref(), Actor.OTHER_CONTROLLER, evidence=self.joined)
        if self.broken:
            raise Stuck(wait)
        return Result(after=RECHECK_SECONDS, waits=(wait,))


class PreflightChecks:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._followed: set[Informer] = set()
        core.clusters.add_index(_BY_CONTROL_PLANE, _control_planes)

    async def verdict(self, scope: MachineSetScope, action: str) -> PreflightVerdict:
        """Decides whether `action` (as messages name it) may go on."""
        left_out = skipped(scope.machine_set, None)
        if not left_out and (ref := scope.bootstrap):
            found, why = await self._read(ref, scope.namespace)
            if found is None:
                return PreflightVerdict((f"failed to read {SKIP_PREFLIGHT_CHECKS} annotation: {why}",), True)
            left_out = skipped(scope.machine_set, found)
        checks = self._core.options.preflight_checks
        control_plane_ref = dig(scope.cluster, "spec", "controlPlaneRef")
        if not checks or ALL in left_out or not control_plane_ref:
            return PreflightVerdict()
        doing = f"failed to perform {go_quote(action)}: failed to perform preflight checks"
        control_plane, why = await self._read(control_plane_ref, scope.namespace, follow=True)
        if control_plane is None:
            name = Key(scope.namespace, control_plane_ref.get("name") or "")
            return PreflightVerdict((f"{doing}: failed to get ControlPlane {name}: {why}",), True)
        try:
            return PreflightVerdict(tuple(problems(scope.machine_set, control_plane, checks, left_out)))
        except IncomparableVersion as error:
            return PreflightVerdict((f"{doing}: {error}",), True)

    async def _read(self, ref: Obj, namespace: str, follow: bool = False) -> tuple[Obj | None, str]:
        """The object that a reference names, or the reason why it can't be read."""
        try:
            informer, _ = await self._core.externals.of(ref.get("apiGroup") or "", ref.get("kind") or "")
        except NoContract as error:
            return None, str(error)
        if follow:
            self._follow(informer)
        found = informer.get(namespace, ref.get("name") or "")
        return (None, not_there(ref, namespace)) if found is None else (found, "")

    def _follow(self, informer: Informer) -> None:
        if informer in self._followed:
            return
        self._followed.add(informer)
        self._core.manager.follow(
            NAME, Watch(informer.resource, self._sets, changed(contracts.spec_version, contracts.status_versions)), informer
        )

    def _sets(self, control_plane: Obj) -> Iterable[Key]:
        kind = GroupVersionKind.of(control_plane)
        for cluster in self._core.clusters.indexed(_BY_CONTROL_PLANE, (kind.group, kind.kind, Key.of(control_plane))):
            for machine_set in self._core.machine_sets.indexed(BY_CLUSTER, Key.of(cluster)):
                yield Key.of(machine_set)


def _control_planes(cluster: Obj) -> Iterable[Hashable]:
    ref = dig(cluster, "spec", "controlPlaneRef")
    if not ref:
        return ()
    return ((ref.get("apiGroup"), ref.get("kind"), Key(namespace_of(cluster), ref.get("name") or "")),)
