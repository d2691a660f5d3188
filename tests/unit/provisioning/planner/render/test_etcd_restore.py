"""What hosts run to restore a snapshot, byte for byte, for each distribution."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import pytest

from remuda.kube.objects import Key
from remuda.provisioning.host_layout import Layout
from remuda.provisioning.planner.render import NamedObject
from remuda.provisioning.planner.snapshot import (
    CannotRender,
    CheckSnapshot,
    CleanNodes,
    CleanPods,
    ResetMember,
    RestoreSnapshot,
    StopForRestore,
    Task,
)
from remuda.provisioning.plans.plan import Instruction, Plan, restarts_nothing

from . import inputs
from .inputs import INIT, JOINED, config_of, facts, machine, plan, text_at
from .test_tasks import install

REQUEST = "&{snap 1 none}"
VALUE = hashlib.sha256(REQUEST.encode()).hexdigest()
FILE = "on-demand-n1-1700000000"
VERSIONS = {"k3s": inputs.K3S, "rke2": inputs.RKE2, "remuda": inputs.REMUDA}
COMMANDS = {"k3s": "k3s", "rke2": "rke2", "remuda": "/var/lib/rancher/remuda/bin/remuda"}


def planned(runtime: str, task: Task, roles: str = "etcd,control-plane,worker", spec: Mapping[str, Any] | None = None) -> Plan:
    return plan(machine(roles), INIT, spec, facts(VERSIONS[runtime]), task)


def once(name: str, command: str, *args: str, env: tuple[str, ...] = ()) -> Instruction:
    told = hashlib.sha256(command.encode()).hexdigest()
    capr = "/var/lib/rancher/capr"
    words = ("-x", f"{capr}/idempotence/idempotent.sh", name, VALUE, told, command, capr, *args)
    return Instruction(f"idempotent-{name}-{VALUE}-{told}", env=env, args=words, command="/bin/sh")


KILLALL = {
    "k3s": "if command -v k3s-killall.sh >/dev/null; then k3s-killall.sh; else echo k3s is not installed; fi",
    "rke2": "if command -v rke2-killall.sh >/dev/null; then rke2-killall.sh; else echo rke2 is not installed; fi",
    "remuda": "for script in /usr/local/bin/remuda-killall.sh /opt/remuda/bin/remuda-killall.sh; "
    "do if [ -x $script ]; then exec $script; fi; done; echo remuda is not installed",
}


def remove_manifests(runtime: str) -> str:
    return f"rm -rf /var/lib/rancher/{runtime}/server/manifests/{runtime}-*.yaml"


@pytest.mark.parametrize("runtime", VERSIONS)
def test_a_server_stops_and_what_it_would_start_with_goes(runtime: str) -> None:
    found = planned(runtime, StopForRestore())
    server = f"/var/lib/rancher/{runtime}/server"
    env = (f"{runtime.upper()}_DATA_DIR=/var/lib/rancher/{runtime}",)
    expected = [Instruction("shutdown", env=env, args=("-c", KILLALL[runtime]), command="/bin/sh")]
    if runtime == "rke2":
        expected.append(Instruction("remove-server-manifests", args=("-c", remove_manifests(runtime)), command="/bin/sh"))
    notes = ("-rf", "/var/lib/rancher/capr/idempotence/etcd-restore")
    mark = f"if [ -d {server}/db/etcd ]; then touch {server}/db/etcd/tombstone; fi"
    expected += [
        Instruction("remove-etcd-restore-notes", args=notes, command="rm"),
        Instruction("create-etcd-tombstone", args=("-c", mark), command="/bin/sh"),
        Instruction("remove-tls-directory", args=("-rf", f"{server}/tls"), command="rm"),
        Instruction("remove-cred-directory", args=("-rf", f"{server}/cred"), command="rm"),
    ]
    assert found.instructions == tuple(expected)
    assert not found.probes and not found.periodicInstructions
    assert found.files == plan(machine(), INIT, None, facts(VERSIONS[runtime])).files


@pytest.mark.parametrize(
    ("roles", "names"),
    [
        ("control-plane", ["shutdown", "remove-server-manifests", "remove-etcd-restore-notes", "remove-tls-directory"]),
        ("worker", ["shutdown", "remove-etcd-restore-notes"]),
    ],
)
def test_machines_without_etcd_have_less_to_lose(roles: str, names: list[str]) -> None:
    found = plan(machine(roles), JOINED, None, facts(inputs.RKE2), StopForRestore())
    assert [each.name for each in found.instructions][: len(names)] == names
    assert not any("tombstone" in each.name for each in found.instructions)


@pytest.mark.parametrize("runtime", VERSIONS)
def test_one_server_makes_a_cluster_of_itself_from_its_snapshot(runtime: str) -> None:
    found = planned(runtime, RestoreSnapshot(REQUEST, FILE))
    version, distro = VERSIONS[runtime], f"/var/lib/rancher/{runtime}"
    env = (f"{runtime.upper()}_DATA_DIR={distro}",)
    expected = [once("etcd-restore/shutdown", "/bin/sh", "-c", KILLALL[runtime], env=env)]
    if runtime == "rke2":
        expected.append(once("etcd-restore/manifest-removal", "/bin/sh", "-c", remove_manifests(runtime)))
    expected += [
        install(runtime, version),
        once("etcd-restore/clean-etcd-dir", "rm", "-rf", f"{distro}/server/db/etcd"),
        once(
            "etcd-restore/restore",
            COMMANDS[runtime],
            "server",
            "--cluster-reset",
            "--etcd-arg=advertise-client-urls=https://localhost:2379",
            "--etcd-disable-snapshots=false",
            f"--cluster-reset-restore-path=db/snapshots/{FILE}",
            "--etcd-s3=false",
        ),
    ]
    assert found.instructions == tuple(expected)
    assert not found.probes and not found.periodicInstructions


def test_a_server_whose_data_is_kept_only_stops() -> None:
    assert [each.name for each in planned("rke2", StopForRestore(keep=True)).instructions] == [
        "shutdown",
        "remove-server-manifests",
        "remove-etcd-restore-notes",
    ]


@pytest.mark.parametrize("runtime", VERSIONS)
def test_one_server_makes_a_cluster_of_itself_from_its_own_data(runtime: str) -> None:
    found = planned(runtime, ResetMember(REQUEST))
    distro = f"/var/lib/rancher/{runtime}"
    env = (f"{runtime.upper()}_DATA_DIR={distro}",)
    reset = ("server", "--cluster-reset", "--etcd-arg=advertise-client-urls=https://localhost:2379")
    assert found.instructions == (
        once("etcd-restore/shutdown", "/bin/sh", "-c", KILLALL[runtime], env=env),
        install(runtime, VERSIONS[runtime]),
        once("etcd-restore/remove-reset-flag", "rm", "-f", f"{distro}/server/db/reset-flag"),
        once("etcd-restore/reset", COMMANDS[runtime], *reset, "--etcd-disable-snapshots=false", "--etcd-s3=false"),
    )
    assert not found.probes and not found.periodicInstructions


def test_a_snapshot_in_another_directory_is_named_by_its_path() -> None:
    for location, said in (
        (f"file:///srv/snapshots/{FILE}", f"/srv/snapshots/{FILE}"),
        (f"file:///var/lib/rancher/k3s/server/db/snapshots/{FILE}", f"db/snapshots/{FILE}"),
        ("", f"db/snapshots/{FILE}"),
    ):
        found = planned("k3s", RestoreSnapshot(REQUEST, FILE, location))
        assert f"--cluster-reset-restore-path={said}" in found.instructions[-1].args


BUCKET = {"bucket": "own", "cloudCredentialName": "cattle-global-data:cc", "region": "here", "endpointCA": "/etc/ca.crt"}
SECRET = NamedObject(data={"s3credentialConfig-accessKey": b"AKIA", "s3credentialConfig-secretKey": b"hidden"})
S3_SPEC = {"kubernetesVersion": inputs.K3S, "etcd": {"s3": BUCKET, "snapshotRetention": 3}}


def in_bucket(**s3: Any) -> Plan:
    known = facts(inputs.K3S, secrets={Key("cattle-global-data", "cc"): SECRET})
    return plan(machine(), INIT, S3_SPEC, known, RestoreSnapshot(REQUEST, FILE, s3=s3))


def test_a_snapshot_in_a_bucket_is_fetched_with_the_cluster_s_credential() -> None:
    found = in_bucket(bucket="theirs", folder="old", skipSSLVerify=True)
    assert found.instructions[-1] == once(
        "etcd-restore/restore",
        "k3s",
        "server",
        "--cluster-reset",
        "--etcd-arg=advertise-client-urls=https://localhost:2379",
        "--etcd-disable-snapshots=false",
        f"--cluster-reset-restore-path={FILE}",
        "--etcd-s3-bucket=theirs",
        "--etcd-s3-access-key=AKIA",
        "--etcd-s3-region=here",
        "--etcd-s3-folder=old",
        "--etcd-s3-skip-ssl-verify=true",
        "--etcd-s3-endpoint-ca=/etc/ca.crt",
        "--etcd-s3",
        env=("AWS_SECRET_ACCESS_KEY=hidden",),
    )
    config = config_of(found, "k3s")
    assert config["etcd-snapshot-retention"] == 3 and not any(name.startswith("etcd-s3") for name in config)


def test_a_certificate_of_the_bucket_comes_with_the_plan() -> None:
    found = in_bucket(bucket="b", endpointCA="-----BEGIN CERTIFICATE-----")
    (path,) = (word.partition("=")[2] for word in found.instructions[-1].args if word.startswith("--etcd-s3-endpoint-ca="))
    assert text_at(found, path) == "-----BEGIN CERTIFICATE-----"


def test_a_snapshot_that_names_another_credential_is_refused() -> None:
    with pytest.raises(CannotRender, match=r"is not that of etcd\.s3\.cloudCredentialName"):
        in_bucket(bucket="b", cloudCredentialName="other:secret")


# --- the way back ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", VERSIONS)
def test_what_cleans_up_is_added_to_the_normal_plan_and_restarts_nothing(runtime: str) -> None:
    normal = plan(machine(), INIT, None, facts(VERSIONS[runtime]))
    for task in (CleanPods(REQUEST, ("uid-1",)), CleanNodes(REQUEST, "0123456789", ("uid-1",), ("n1",))):
        found = planned(runtime, task)
        assert found.instructions[: len(normal.instructions)] == normal.instructions
        assert found.probes == normal.probes and found.files[: len(normal.files)] == normal.files
        assert restarts_nothing(found, normal) and not restarts_nothing(planned(runtime, StopForRestore()), normal)


def test_pods_of_the_system_are_deleted_once_the_node_is_ready() -> None:
    env = ("KUBECONFIG=/etc/rancher/k3s/k3s.yaml",)
    found = planned("k3s", CleanPods(REQUEST, ("uid-1", "uid-2"))).instructions[1:]
    scripts, kubectl = "/var/lib/rancher/k3s/capr/etcd-restore/bin", "/usr/local/bin/kubectl"
    assert found[:3] == (
        once("etcd-restore/wait-for-pod-list", "/bin/sh", f"{scripts}/wait_for_pod_list.sh", kubectl, env=env),
        once("etcd-restore/wait-for-ready", "/bin/sh", f"{scripts}/wait_for_ready.sh", kubectl, "uid-1", "uid-2", env=env),
        once(
            "etcd-restore/clean-pods-0",
            kubectl,
            "delete",
            "pods",
            "-n",
            "kube-system",
            "-l",
            "k8s-app=kube-dns",
            "--wait=false",
            env=env,
        ),
    )
    selected = [each.args[-2] for each in found[2:]]
    assert "app=cattle-cluster-agent" in selected and "k8s-app=calico-node" not in selected
    of_rke2 = planned("rke2", CleanPods(REQUEST, ("uid-1",))).instructions[1:]
    assert "k8s-app=calico-node" in [each.args[-2] for each in of_rke2[2:]]
    assert of_rke2[2].args[5] == "/var/lib/rancher/rke2/bin/kubectl"


def test_a_first_server_without_an_api_only_starts() -> None:
    known = facts(inputs.K3S)
    assert planned("k3s", CleanPods(REQUEST, ("uid-1",)), "etcd") == plan(machine("etcd"), INIT, None, known)


def test_nodes_are_deleted_by_lists_in_files() -> None:
    found = planned("rke2", CleanNodes(REQUEST, "0123456789", ("uid-2", "uid-1"), ("n2", "n1")))
    scripts = "/var/lib/rancher/rke2/capr/etcd-restore/bin"
    lists = (f"{scripts}/machine-ids-0123456789", f"{scripts}/node-names-0123456789")
    assert [text_at(found, path) for path in lists] == ["uid-1\nuid-2\n", "n1\nn2\n"]
    assert found.instructions[1:] == (
        once(
            "etcd-restore/clean-nodes",
            "/bin/sh",
            f"{scripts}/clean_up_nodes.sh",
            "/var/lib/rancher/rke2/bin/kubectl",
            *lists,
            env=("KUBECONFIG=/etc/rancher/rke2/rke2.yaml",),
        ),
    )


def test_a_host_in_a_directory_has_all_of_it_below_its_root() -> None:
    host = machine(on=Layout("/srv/a", "127.4.5.6"))
    known = facts(inputs.REMUDA)
    for task in (
        StopForRestore(),
        RestoreSnapshot(REQUEST, FILE),
        CleanPods(REQUEST, ("u",)),
        CleanNodes(REQUEST, "0", ("u",), ()),
    ):
        for each in plan(host, INIT, None, known, task).instructions:
            for word in (each.command, *each.args):
                assert "/var/lib" not in word.replace("/srv/a/var/lib", "") and "localhost" not in word


# --- the check --------------------------------------------------------------------------------------------------------------


def test_the_file_is_checked_with_what_is_known_of_it() -> None:
    script = "/var/lib/rancher/rke2/capr/etcd-restore/bin/check_snapshot.sh"
    found = planned("rke2", CheckSnapshot(REQUEST, FILE, "", 4128, "ab"))
    file = f"/var/lib/rancher/rke2/server/db/snapshots/{FILE}"
    check = Instruction("check-snapshot", args=(script, file, "4128", "ab"), command="/bin/sh")
    assert found.instructions == (install("rke2", inputs.RKE2), check)
    assert "is no snapshot of etcd" in text_at(found, script) and not found.probes
    ours = planned("remuda", CheckSnapshot(REQUEST, FILE)).instructions[-1]
    assert ours.args[2:] == ("0", "", "/var/lib/rancher/remuda/bin/remuda")
