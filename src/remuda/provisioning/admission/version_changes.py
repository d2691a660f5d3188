"""Which version of Kubernetes a cluster may be brought to, given what its machines run; a pure question, asked at admission.

Servers go up one minor version at a time, since an API server reads what the one before it has stored, not what older ones
have. They never go down: what the newer one has stored may mean nothing to the older. The way back is a snapshot of etcd that
was taken on that version. Kubelets may lag three minor versions behind their API servers. Within a minor version everything
goes, but who goes back is warned. :mod:`.provider_objects` asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from remuda.capi.kubernetes_versions import compare
from remuda.kube import semver

from ..releases import distributions
from ..releases.distributions import Runtime

# How far behind its API servers a kubelet may be, in minor versions.
KUBELET_SKEW = 3
EXAMPLE = "v1.34.1+rke2r1"


@dataclass(frozen=True, slots=True)
class Running:
    """A machine, and what it runs; an empty version as long as nobody knows."""

    machine: str
    version: str
    server: bool


def parsed(version: str) -> semver.Version | None:
    """A version of Kubernetes as it is written in specs, with its `v`; None when it is none."""
    if not version.startswith("v"):
        return None
    try:
        return semver.parse(version[1:])
    except semver.VersionError:
        return None


def distribution(version: str) -> Runtime | None:
    """The distribution that a version names after its `+`; None when it names none that can be installed."""
    build = version.partition("+")[2]
    return distributions.of_version(version) if any(each.name in build for each in distributions.ALL) else None


def form_problem(version: str) -> str:
    """Why this is no version that could be installed; "" when it is one."""
    if parsed(version) is None:
        return f"must be a version such as {EXAMPLE}"
    if distribution(version) is None:
        names = ", ".join(f"+{runtime.name}" for runtime in distributions.ALL)
        return f"must name its distribution, one of {names}, such as {EXAMPLE}"
    return ""


def change_problem(old: str, new: str, machines: Iterable[Running], *, initialized: bool, restoring: str = "") -> str:
    """Why a cluster can't be brought from one version to the other; "" when it can.

    `initialized`: its control plane has run, so there is something to lose. `restoring`: the version that a restore of etcd
    that is still to be done brings back with it.
    """
    before, after = parsed(old), parsed(new)
    if before is None or after is None:
        return ""
    found = list(machines)
    had, gets = distributions.of_version(old), distributions.of_version(new)
    if had != gets and (initialized or found):
        return f"machines of this cluster have {had.name}, which can't be turned into {gets.name}: make another cluster"
    if not initialized or restoring == new:
        return ""
    return _step_problem(old, before, new, after) or _lag_problem(after, found)


def goes_back(old: str, new: str) -> bool:
    """Whether the new version is an older release."""
    before, after = parsed(old), parsed(new)
    return before is not None and after is not None and compare(after, before) == -1


def _minor(version: semver.Version) -> tuple[int, int]:
    return version.major, version.minor


def _named(version: semver.Version, ahead: int = 0) -> str:
    return f"v{version.major}.{version.minor + ahead}"


def _step_problem(old: str, before: semver.Version, new: str, after: semver.Version) -> str:
    if _minor(after) < _minor(before):
        return (
            f"{new} is older than {old}, and can't read what {_named(before)} has stored: "
            f"to go back, restore a snapshot of etcd that was taken with {_named(after)}, together with its version"
        )
    if after.major != before.major or after.minor > before.minor + 1:
        return f"goes from {old} past {_named(before, 1)}: a control plane goes up one minor version at a time"
    return ""


def _lag_problem(after: semver.Version, machines: Iterable[Running]) -> str:
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
