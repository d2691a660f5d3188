"""Which version of Kubernetes a cluster may be brought to."""

from __future__ import annotations

import pytest

from remuda.provisioning.admission.version_changes import RunningVersion, change_problem, distribution, form_problem, goes_back

OLD = "v1.33.4+rke2r1"


def server(version: str, name: str = "cp-1") -> RunningVersion:
    return RunningVersion(name, version, server=True)


def worker(version: str, name: str = "w-1") -> RunningVersion:
    return RunningVersion(name, version, server=False)


def problem(new: str, *machines: RunningVersion, old: str = OLD, initialized: bool = True, restoring: str = "") -> str:
    return change_problem(old, new, machines, initialized=initialized, restoring=restoring)


@pytest.mark.parametrize("version", ["v1.34.1+rke2r1", "v1.34.1-rc2+k3s1", "v1.34.1+remuda1", "v1.34.1+rke2r1-build20260101"])
def test_a_version_names_its_distribution(version: str) -> None:
    assert form_problem(version) == ""


def test_the_distribution_is_what_stands_after_the_plus() -> None:
    found = {version: distribution(version) for version in ("v1.34.1+k3s1", "v1.34.1+rke2r2", "v1.34.1+remuda1", "v1.34.1-k3s1")}
    assert {version: runtime and runtime.name for version, runtime in found.items()} == {
        "v1.34.1+k3s1": "k3s",
        "v1.34.1+rke2r2": "rke2",
        "v1.34.1+remuda1": "remuda",
        "v1.34.1-k3s1": None,
    }


@pytest.mark.parametrize("version", ["1.34.1+rke2r1", "v1.34+rke2r1", "latest", "v1.34.01+k3s1"])
def test_what_is_no_version_is_refused(version: str) -> None:
    assert form_problem(version) == "must be a version such as v1.34.1+rke2r1"


@pytest.mark.parametrize("version", ["v1.34.1", "v1.34.1+gke1"])
def test_a_version_that_nobody_here_installs_is_refused(version: str) -> None:
    assert form_problem(version) == "must name its distribution, one of +k3s, +rke2, +remuda, such as v1.34.1+rke2r1"


@pytest.mark.parametrize("new", ["v1.33.5+rke2r1", "v1.33.4+rke2r2", "v1.34.0+rke2r1", "v1.33.1+rke2r1"])
def test_a_control_plane_goes_up_one_minor_version_and_anywhere_within_one(new: str) -> None:
    assert problem(new, server(OLD), worker(OLD)) == ""


def test_minor_versions_are_not_skipped() -> None:
    assert problem("v1.35.0+rke2r1") == (
        "goes from v1.33.4+rke2r1 past v1.34: a control plane goes up one minor version at a time"
    )
    assert "one minor version at a time" in problem("v2.0.0+rke2r1")


def test_an_older_minor_version_is_refused_with_the_way_back() -> None:
    assert problem("v1.32.9+rke2r1") == (
        "v1.32.9+rke2r1 is older than v1.33.4+rke2r1, and can't read what v1.33 has stored: "
        "to go back, restore a snapshot of etcd that was taken with v1.32, together with its version"
    )


def test_a_restore_brings_back_its_own_version_and_no_other() -> None:
    assert problem("v1.31.9+rke2r1", restoring="v1.31.9+rke2r1") == ""
    assert problem("v1.32.9+rke2r1", restoring="v1.31.9+rke2r1") != ""
    assert problem("v1.31.9+k3s1", restoring="v1.31.9+k3s1") != ""


@pytest.mark.parametrize("new", ["v1.20.1+rke2r1", "v1.40.0+rke2r1"])
def test_before_a_control_plane_has_run_there_is_nothing_to_lose(new: str) -> None:
    assert problem(new, server(""), initialized=False) == ""


def test_a_distribution_stays_as_soon_as_a_machine_may_have_it() -> None:
    why = "machines of this cluster have rke2, which can't be turned into k3s: make another cluster"
    assert problem("v1.33.5+k3s1") == why
    assert problem("v1.33.5+k3s1", server(""), initialized=False) == why
    assert problem("v1.33.5+k3s1", initialized=False) == ""


def test_a_server_that_lags_behind_an_upgrade_holds_the_next_one_up() -> None:
    late = server("v1.32.9+rke2r1", "cp-2")
    assert problem("v1.34.0+rke2r1", server(OLD), late) == (
        "machine cp-2 still runs v1.32.9+rke2r1, and a control plane goes up one minor version at a time: "
        "wait until it has v1.33, or delete it"
    )
    assert problem("v1.33.5+rke2r1", server(OLD), late) == ""


def test_a_worker_may_lag_three_minor_versions_behind() -> None:
    assert problem("v1.34.0+rke2r1", server(OLD), worker("v1.31.2+rke2r1")) == ""
    assert problem("v1.34.0+rke2r1", server(OLD), worker("v1.30.2+rke2r1", "w-7")) == (
        "machine w-7 still runs v1.30.2+rke2r1, and a kubelet may be at most 3 minor versions behind its control plane: "
        "wait until it has v1.31, or delete it"
    )


def test_a_machine_whose_version_nobody_knows_holds_nothing_up() -> None:
    assert problem("v1.34.0+rke2r1", server(""), worker("?")) == ""


def test_what_could_not_be_read_before_can_be_replaced() -> None:
    assert problem("v1.34.0+rke2r1", old="latest") == ""


@pytest.mark.parametrize(
    ("old", "new", "back"),
    [
        ("v1.33.4+rke2r1", "v1.33.3+rke2r1", True),
        ("v1.33.4+rke2r1", "v1.33.4-rc1+rke2r1", True),
        ("v1.33.4+rke2r1", "v1.33.4+rke2r1", False),
        ("v1.33.4+rke2r1", "v1.33.5+rke2r1", False),
        ("latest", "v1.33.5+rke2r1", False),
    ],
)
def test_going_back_is_noticed(old: str, new: str, back: bool) -> None:
    assert goes_back(old, new) is back


def test_a_version_that_no_server_could_install_is_taken_back() -> None:
    old, new = "v1.35.99+remuda1", "v1.34.1+remuda1"
    stuck = RunningVersion("a", new, True, without_image=True)
    assert change_problem(old, new, [stuck, RunningVersion("b", new, True)], initialized=True) == ""
    # A server that runs it, or that only failed for another reason, forbids it.
    assert "restore a snapshot" in change_problem(old, new, [stuck, RunningVersion("b", old, True)], initialized=True)
    assert "restore a snapshot" in change_problem(old, new, [RunningVersion("a", new, True)], initialized=True)
    assert "restore a snapshot" in change_problem(
        old, new, [RunningVersion("a", new, False, without_image=True)], initialized=True
    )
    assert "restore a snapshot" in change_problem(old, new, [RunningVersion("a", "", True, without_image=True)], initialized=True)
