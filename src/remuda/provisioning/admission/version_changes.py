"""Rules for changes of a cluster's Kubernetes version, given its machines' versions; pure, called at admission.

Servers go up one minor version at a time, since an API server reads what the previous minor version stored, not what
older ones did. They never go down: an older server may not understand what a newer one stored. The way back is an etcd
snapshot taken on that version. Kubelets may be three minor versions behind their API servers. Within a minor version every
change is allowed, but a downgrade is warned about. :mod:`.provider_objects` is the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from remuda.capi import kubernetes_versions
from remuda.capi.kubernetes_versions import compare

from ..releases import distributions
from ..releases.distributions import Runtime

# How far behind its API servers a kubelet may be, in minor versions.
KUBELET_SKEW = 3
EXAMPLE = "v1.34.1+rke2r1"


@dataclass(frozen=True, slots=True)
class RunningVersion:
    """A machine and its version; the version is empty while it is unknown.

    `without_image`: the installer image of the requested version does not exist, so the machine never ran it.
    """

    machine: str
    version: str
    server: bool
    without_image: bool = False


def parsed(version: str) -> kubernetes_versions.KubernetesVersion | None:
    """A Kubernetes version as in specs, with its `v`; None if it is invalid."""
    if not version.startswith("v"):
        return None
    try:
        return kubernetes_versions.parse(version[1:])
    except kubernetes_versions.VersionError:
        return None


def distribution(version: str) -> Runtime | None:
    """The distribution that a version names after its `+`; None if it names none that can be installed."""
    build = version.partition("+")[2]
    return distributions.of_version(version) if any(each.name in build for each in distributions.ALL) else None


def form_problem(version: str) -> str:
    """The reason why this version can't be installed; "" if it can."""
    if parsed(version) is None:
        return f"must be a version such as {EXAMPLE}"
    if distribution(version) is None:
        names = ", ".join(f"+{runtime.name}" for runtime in distributions.ALL)
        return f"must name its distribution, one of {names}, such as {EXAMPLE}"
    return ""


def change_problem(old: str, new: str, machines: Iterable[RunningVersion], *, initialized: bool, restoring: str = "") -> str:
    """The reason why a cluster can't change from one version to the other; "" if it can.

    `initialized`: the control plane has run, so there is data to lose. `restoring`: the version that a pending restore of
    etcd brings back, or that all machines still have.
    """
    before, after = parsed(old), parsed(new)
    if before is None or after is None:
        return ""
    found = list(machines)
    had, gets = distributions.of_version(old), distributions.of_version(new)
    if had != gets and (initialized or found):
        return f"machines of this cluster have {had.name}, which can't be turned into {gets.name}: make another cluster"
    if not initialized or restoring == new or _never_ran(after, found):
        return ""
    return _step_problem(old, before, new, after) or _lag_problem(after, found)


def _never_ran(after: kubernetes_versions.KubernetesVersion, machines: Iterable[RunningVersion]) -> bool:
    """True if the cluster may go back to `after`, since no server ever ran the newer version: it has no installer image."""
    servers = [machine for machine in machines if machine.server]
    minors = [_minor(found) for machine in servers if (found := parsed(machine.version)) is not None]
    return any(machine.without_image for machine in servers) and bool(minors) and max(minors) <= _minor(after)


def goes_back(old: str, new: str) -> bool:
    """True if the new version is an older release."""
    before, after = parsed(old), parsed(new)
    return before is not None and after is not None and compare(after, before) == -1


def _minor(version: kubernetes_versions.KubernetesVersion) -> tuple[int, int]:
    return version.major, version.minor


def _named(version: kubernetes_versions.KubernetesVersion, ahead: int = 0) -> str:
    return f"v{version.major}.{version.minor + ahead}"


def _step_problem(
    old: str, before: kubernetes_versions.KubernetesVersion, new: str, after: kubernetes_versions.KubernetesVersion
) -> str:
    if _minor(after) < _minor(before):
        return (
            f"{new} is older than {old}, and can't read what {_named(before)} has stored: "
            f"to go back, restore a snapshot of etcd that was taken with {_named(after)}, together with its version"
        )
    if after.major != before.major or after.minor > before.minor + 1:
        return f"goes from {old} past {_named(before, 1)}: a control plane goes up one minor version at a time"
    return ""


def _lag_problem(after: kubernetes_versions.KubernetesVersion, machines: Iterable[RunningVersion]) -> str:
    for machine in machines:
        runs = parsed(machine.version)
        if runs is None or runs.major != after.major:
            continue
        most = 1 if machine.server else KUBELET_SKEW
        if after.minor - runs.minor <= most:
            continue
        needed = f"v{after.major}.{after.minor - most}"
        if machine.server:
            why = "a control plane goes up one minor version at a time"
        else:
            why = f"a kubelet may be at most {KUBELET_SKEW} minor versions behind its control plane"
        return f"machine {machine.machine} still runs {machine.version}, and {why}: wait until it has {needed}, or delete it"
    return ""
