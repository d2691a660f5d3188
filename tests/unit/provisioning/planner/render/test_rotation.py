"""The plans by which hosts rotate certificates and keys, byte for byte, for each distribution."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import pytest

from remuda.provisioning.planner.render.rotation import STATUS
from remuda.provisioning.planner.snapshot import RestartServer, RotateCertificates, RotateKeys
from remuda.provisioning.plans.plan import Instruction, PeriodicInstruction, Plan

from . import inputs
from .inputs import INIT, JOINED, facts, file_at, machine, plan

RUNTIMES = ["k3s", "rke2", "remuda"]
VERSIONS = {"k3s": inputs.K3S, "rke2": inputs.RKE2, "remuda": inputs.REMUDA}
COMMANDS = {"k3s": "k3s", "rke2": "rke2", "remuda": "/var/lib/rancher/remuda/bin/remuda"}
SERVERS = {"k3s": "k3s", "rke2": "rke2-server", "remuda": "remuda-server"}
AGENTS = {"k3s": "k3s-agent", "rke2": "rke2-agent", "remuda": "remuda-node"}
CAPR = "/var/lib/rancher/capr"


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def once(identifier: str, value: str, command: str, *args: str) -> Instruction:
    words = ("-x", f"{CAPR}/idempotence/idempotent.sh", identifier, sha(value), sha(command), command, CAPR, *args)
    return Instruction(f"idempotent-{identifier}-{sha(value)}-{sha(command)}", args=words, command="/bin/sh")


def restart(identifier: str, value: str, unit: str) -> list[Instruction]:
    reset = f"if [ $(systemctl is-failed {unit}) = failed ]; then systemctl reset-failed {unit}; fi"
    return [
        once(f"{identifier}-reset-failed", value, "/bin/sh", "-c", reset),
        once(f"{identifier}-restart", value, "systemctl", "restart", unit),
    ]


def rotation(runtime: str, roles: str = "etcd,control-plane", services: Iterable[str] = ()) -> Plan:
    join = INIT if roles != "worker" else JOINED
    return plan(machine(roles), join, None, facts(VERSIONS[runtime]), RotateCertificates(7, tuple(services)))


def test_certificates_of_a_k3s_server() -> None:
    tls = "/var/lib/rancher/k3s/server/tls"
    assert list(rotation("k3s").instructions) == [
        once("certificate-rotation/stop-stop", "7", "systemctl", "stop", "k3s"),
        once("certificate-rotation/rotate", "7", "k3s", "certificate", "rotate"),
        once("certificate-rotation/rm-kcm-cert", "7", "rm", "-f", f"{tls}/kube-controller-manager/kube-controller-manager.crt"),
        once("certificate-rotation/rm-kcm-key", "7", "rm", "-f", f"{tls}/kube-controller-manager/kube-controller-manager.key"),
        once("certificate-rotation/rm-ks-cert", "7", "rm", "-f", f"{tls}/kube-scheduler/kube-scheduler.crt"),
        once("certificate-rotation/rm-ks-key", "7", "rm", "-f", f"{tls}/kube-scheduler/kube-scheduler.key"),
        *restart("certificate-rotation/restart", "7", "k3s"),
    ]


@pytest.mark.parametrize("runtime", ["k3s", "rke2"])
def test_commands_that_do_not_read_the_configuration_are_told_the_directory(runtime: str) -> None:
    def moved(task: RotateCertificates | RotateKeys | RestartServer) -> list[str]:
        spec = {"dataDirectories": {"k8sDistro": "/data/distro"}}
        found = plan(machine("etcd,control-plane"), INIT, spec, facts(VERSIONS[runtime]), task)
        commands = [" ".join([each.command, *each.args]) for each in (*found.instructions, *found.periodicInstructions)]
        own = [each for each in commands if f" {runtime} " in each or each.startswith(runtime)]
        return [each.partition(" /var/lib/rancher/capr ")[2] or each for each in own]

    scripts = "/data/distro/capr/encryption-key-rotation/bin"
    option = "--data-dir /data/distro"
    answered = [
        f"sh -x {scripts}/secrets_encrypt_status.sh {runtime}  {option}",
        *[f"{runtime} secrets-encrypt status {option}"] * 2,
    ]
    assert moved(RotateCertificates(7, ("kubelet",))) == [f"certificate rotate {option} -s kubelet"]
    assert moved(RotateKeys(3, "Prepare", "prepare")) == [f"secrets-encrypt prepare {option}", *answered]
    assert moved(RotateKeys(3, "Rotate", "rotate-keys")) == [f"{scripts}/rotate_keys.sh {runtime} {option}", *answered]
    restarted = moved(RestartServer(3, "PostRotateRestart", "rotate"))
    assert f"sh -x {scripts}/wait_for_secrets_encrypt_status.sh {runtime} {option}" in restarted
    assert f"sh -x {scripts}/secrets_encrypt_status.sh {runtime} rotate {option}" in restarted


def test_certificates_of_an_rke2_server() -> None:
    distro = "/var/lib/rancher/rke2"
    tls, pods = f"{distro}/server/tls", f"{distro}/agent/pod-manifests"
    assert list(rotation("rke2").instructions) == [
        once("certificate-rotation/stop-stop", "7", "systemctl", "stop", "rke2-server"),
        once("certificate-rotation/rotate", "7", "rke2", "certificate", "rotate"),
        once("certificate-rotation/rm-kcm-cert", "7", "rm", "-f", f"{tls}/kube-controller-manager/kube-controller-manager.crt"),
        once("certificate-rotation/rm-kcm-key", "7", "rm", "-f", f"{tls}/kube-controller-manager/kube-controller-manager.key"),
        once("certificate-rotation/rm-kcm-spm", "7", "rm", "-f", f"{pods}/kube-controller-manager.yaml"),
        once("certificate-rotation/rm-ks-cert", "7", "rm", "-f", f"{tls}/kube-scheduler/kube-scheduler.crt"),
        once("certificate-rotation/rm-ks-key", "7", "rm", "-f", f"{tls}/kube-scheduler/kube-scheduler.key"),
        once("certificate-rotation/rm-ks-spm", "7", "rm", "-f", f"{pods}/kube-scheduler.yaml"),
        once("certificate-rotation/manifest-removal", "7", "/bin/sh", "-c", f"rm -rf {distro}/server/manifests/rke2-*.yaml"),
        *restart("certificate-rotation/restart", "7", "rke2-server"),
    ]


def test_certificates_of_a_remuda_server() -> None:
    tls = "/var/lib/rancher/remuda/server/tls"
    assert list(rotation("remuda").instructions) == [
        once("certificate-rotation/stop-stop", "7", "systemctl", "stop", "remuda-server"),
        once("certificate-rotation/rotate", "7", COMMANDS["remuda"], "certificate", "rotate"),
        once("certificate-rotation/rm-kcm-cert", "7", "rm", "-f", f"{tls}/kube-controller-manager/kube-controller-manager.crt"),
        once("certificate-rotation/rm-kcm-key", "7", "rm", "-f", f"{tls}/kube-controller-manager/kube-controller-manager.key"),
        once("certificate-rotation/rm-ks-cert", "7", "rm", "-f", f"{tls}/kube-scheduler/kube-scheduler.crt"),
        once("certificate-rotation/rm-ks-key", "7", "rm", "-f", f"{tls}/kube-scheduler/kube-scheduler.key"),
        *restart("certificate-rotation/restart", "7", "remuda-server"),
    ]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_member_of_etcd_has_no_components(runtime: str) -> None:
    found = [each.name.split("-", 1)[1].rsplit("-", 2)[0] for each in rotation(runtime, "etcd").instructions]
    removal = ["certificate-rotation/manifest-removal"] if runtime == "rke2" else []
    restarts = ["certificate-rotation/restart-reset-failed", "certificate-rotation/restart-restart"]
    assert found == ["certificate-rotation/stop-stop", "certificate-rotation/rotate", *removal, *restarts]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_worker_only_restarts(runtime: str) -> None:
    found = rotation(runtime, "worker")
    assert list(found.instructions) == restart("certificate-rotation/restart", "7", AGENTS[runtime])
    assert list(found.probes) == (["calico", "kubelet"] if runtime == "rke2" else ["kubelet"])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_named_services(runtime: str) -> None:
    found = rotation(runtime, services=("etcd", "scheduler"))
    rotate = next(each for each in found.instructions if "/rotate-" in each.name)
    assert rotate.args[-6:] == ("certificate", "rotate", "-s", "etcd", "-s", "scheduler")
    removed = [each.name for each in found.instructions if "/rm-" in each.name]
    assert removed and not any("-kcm-" in name for name in removed)


def test_a_users_own_certificate_of_a_component_stays() -> None:
    spec = {"machineGlobalConfig": {"kube-scheduler-arg": ["tls-cert-file=/etc/mine.crt"]}}
    found = plan(machine(), INIT, spec, facts(inputs.K3S), RotateCertificates(7))
    assert not any("/rm-ks-" in each.name for each in found.instructions)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_files_are_the_normal_ones_and_nothing_is_installed(runtime: str) -> None:
    normal = plan(machine("etcd,control-plane"), INIT, None, facts(VERSIONS[runtime]))
    found = rotation(runtime)
    assert found.files == normal.files and found.probes == normal.probes and found.probes
    assert not any(each.name == "install" or each.image for each in found.instructions) and not found.error


# --- keys -------------------------------------------------------------------------------------------------------------------


def scripts(runtime: str, name: str) -> str:
    return f"/var/lib/rancher/{runtime}/capr/encryption-key-rotation/bin/{name}"


def marks(phase: str) -> tuple[str, str]:
    return f"ENCRYPTION_KEY_ROTATION_STAGE={phase}", "ENCRYPTION_KEY_ROTATION_GENERATION=3"


def status(runtime: str, phase: str, *stage: str) -> list[Instruction]:
    args = ("-x", scripts(runtime, "secrets_encrypt_status.sh"), COMMANDS[runtime], *stage)
    return [
        Instruction("secrets-encrypt-status-script", env=marks(phase), args=args, command="sh"),
        Instruction(STATUS, env=marks(phase), args=("secrets-encrypt", "status"), command=COMMANDS[runtime], saveOutput=True),
    ]


def added(found: Plan, runtime: str) -> list[str]:
    """The files that a normal plan lacks."""
    normal = plan(machine("etcd,control-plane"), INIT, None, facts(VERSIONS[runtime]))
    assert found.files[: len(normal.files)] == normal.files
    return [file.path.rpartition("/")[2] for file in found.files[len(normal.files) :]]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("command", ["prepare", "rotate", "reencrypt"])
def test_a_step_of_the_staged_rotation(runtime: str, command: str) -> None:
    phase = command.capitalize()
    found = plan(machine("etcd,control-plane"), INIT, None, facts(VERSIONS[runtime]), RotateKeys(3, phase, command))
    run = once(f"encryption-key-rotation/{command}", "3", COMMANDS[runtime], "secrets-encrypt", command)
    assert list(found.instructions) == [run, *status(runtime, phase)]
    reported = PeriodicInstruction(
        STATUS, env=marks(phase), args=("secrets-encrypt", "status"), command=COMMANDS[runtime], periodSeconds=5
    )
    assert found.periodicInstructions == (reported,) and not found.probes
    assert added(found, runtime) == ["wait_for_secrets_encrypt_status.sh", "secrets_encrypt_status.sh"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_rotation_in_one_step(runtime: str) -> None:
    found = plan(machine("etcd,control-plane"), INIT, None, facts(VERSIONS[runtime]), RotateKeys(3, "Rotate", "rotate-keys"))
    script = scripts(runtime, "rotate_keys.sh")
    run = once("encryption-key-rotation/rotate", "3", "/bin/sh", script, COMMANDS[runtime])
    assert list(found.instructions) == [run, *status(runtime, "Rotate")]
    assert added(found, runtime) == ["wait_for_secrets_encrypt_status.sh", "secrets_encrypt_status.sh", "rotate_keys.sh"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_restart_between_two_steps(runtime: str) -> None:
    phase, key = "PostRotateRestart", "encryption-key-rotation"
    found = plan(machine("etcd,control-plane"), INIT, None, facts(VERSIONS[runtime]), RestartServer(3, phase, "rotate"))
    env = ("CONTAINER_RUNTIME_ENDPOINT=unix:///var/run/k3s/containerd/containerd.sock", *marks(phase))
    removal = "rm -rf /var/lib/rancher/rke2/server/manifests/rke2-*.yaml"
    assert list(found.instructions) == [
        *([once(f"{key}/manifest-cleanup/postrotaterestart", "3", "/bin/sh", "-c", removal)] if runtime == "rke2" else []),
        *restart(f"{key}/restart/postrotaterestart", "3", SERVERS[runtime]),
        Instruction(
            "wait-for-systemctl-status",
            env=env,
            args=("-x", scripts(runtime, "wait_for_systemctl_status.sh"), SERVERS[runtime]),
            command="sh",
        ),
        Instruction(
            "wait-for-secrets-encrypt-status",
            env=env,
            args=("-x", scripts(runtime, "wait_for_secrets_encrypt_status.sh"), COMMANDS[runtime]),
            command="sh",
            saveOutput=True,
        ),
        *status(runtime, phase, "rotate"),
    ]
    assert found.probes == plan(machine("etcd,control-plane"), INIT, None, facts(VERSIONS[runtime])).probes
    names = ["wait_for_systemctl_status.sh", "secrets_encrypt_status.sh", "wait_for_secrets_encrypt_status.sh"]
    assert added(found, runtime) == names


def test_a_restarted_member_of_etcd_is_not_asked_for_the_stage() -> None:
    found = plan(machine("etcd"), INIT, None, facts(inputs.K3S), RestartServer(3, "PostRotateRestart"))
    assert [each.name for each in found.instructions][-1] == "wait-for-systemctl-status"
    assert not any(each.name == STATUS for each in found.periodicInstructions)


def test_a_moved_data_directory_is_used() -> None:
    spec = {"dataDirectories": {"k8sDistro": "/data/rke2", "provisioning": "/data/capr"}}
    found = plan(machine("etcd,control-plane"), INIT, spec, facts(), RotateKeys(3, "Prepare", "prepare"))
    assert found.instructions[0].args[1] == "/data/capr/idempotence/idempotent.sh"
    assert file_at(found, "/data/rke2/capr/encryption-key-rotation/bin/secrets_encrypt_status.sh") is not None
