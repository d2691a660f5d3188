"""Whether a set may make machines now: the control plane must be there, must not be upgrading, and versions must fit.

Pure; :mod:`.preflight_gate` reads what these decide on. The words are what users see in conditions.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from remuda.kube import semver
from remuda.kube.errors import go_quote
from remuda.kube.objects import Key, annotations_of, dig

from .. import contract_fields
from ..kubernetes_versions import UNORDERED, compare, tolerant
from ..well_known import SKIP_PREFLIGHT_CHECKS

Obj = dict[str, Any]

ALL = "All"
STABLE = "ControlPlaneIsStable"
KUBERNETES_SKEW = "KubernetesVersionSkew"
KUBEADM_SKEW = "KubeadmVersionSkew"

_MINORS_BEHIND = 3
_KUBEADM = ("bootstrap.cluster.x-k8s.io", "KubeadmConfigTemplate")


class Unreadable(Exception):
    """A version that can't be compared: neither a yes nor a no."""


def skipped(machine_set: Obj, bootstrap_template: Obj | None) -> frozenset[str]:
    """The checks that an annotation of the set, or else of its bootstrap template, leaves out."""
    listed = annotations_of(machine_set).get(SKIP_PREFLIGHT_CHECKS)
    if not listed and bootstrap_template is not None:
        listed = annotations_of(bootstrap_template).get(SKIP_PREFLIGHT_CHECKS)
    return frozenset(check.strip() for check in listed.split(",")) if listed else frozenset()


def problems(machine_set: Obj, control_plane: Obj, checks: Collection[str], left_out: Collection[str]) -> list[str]:
    """What speaks against new machines, one sentence each. Raises Unreadable."""
    wanted = contract_fields.spec_version(control_plane)
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


def _read(text: str, otherwise: str) -> semver.Version:
    version = tolerant(text)
    if version is None:
        raise Unreadable(f"{otherwise}: it is no semantic version")
    return version


def _failed(check: str) -> str:
    return f"({go_quote(check)} preflight check failed)"


def _unstable(control_plane: Obj, wanted: semver.Version) -> str:
    who = f"{control_plane.get('kind')} {Key.of(control_plane)}"
    running = [each["version"] for each in contract_fields.status_versions(control_plane)]
    if not running:
        return f"{who} is provisioning {_failed(STABLE)}"
    check = f"failed to perform {go_quote(STABLE)} preflight check: failed to check if the {who} is upgrading"
    for version in running:
        found = _read(str(version), f"{check}: failed to parse control plane status version {go_quote(str(version))}")
        if compare(wanted, found) in (1, UNORDERED):
            return f"{who} is upgrading {_failed(STABLE)}"
    return ""


def _pair(version: semver.Version, control_plane: semver.Version) -> str:
    return f"MachineSet version ({version}) and ControlPlane version ({control_plane}) do not conform to"


def _kubernetes_skew(version: semver.Version, control_plane: semver.Version) -> str:
    policy = f"{_pair(version, control_plane)} the kubernetes version skew policy as MachineSet version is"
    if version.minor > control_plane.minor:
        return f"{policy} higher than ControlPlane version {_failed(KUBERNETES_SKEW)}"
    if version.minor < control_plane.minor - _MINORS_BEHIND:
        return (
            f"{policy} more than {_MINORS_BEHIND} minor versions older than the ControlPlane version {_failed(KUBERNETES_SKEW)}"
        )
    return ""


def _kubeadm_skew(machine_set: Obj, version: semver.Version, control_plane: semver.Version) -> str:
    ref = dig(machine_set, "spec", "template", "spec", "bootstrap", "configRef") or {}
    if (ref.get("apiGroup"), ref.get("kind")) != _KUBEADM or version.minor == control_plane.minor:
        return ""
    return (
        f"{_pair(version, control_plane)} kubeadm version skew policy as kubeadm only supports joining with the same "
        f"major+minor version as the control plane {_failed(KUBEADM_SKEW)}"
    )
