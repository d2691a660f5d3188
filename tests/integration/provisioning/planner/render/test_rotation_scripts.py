"""The scripts of rotations and the report of certificates, run by a real shell with a program in the distribution's place."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path

import pytest

from remuda.kube import certificates
from remuda.kube.clock import SYSTEM_CLOCK, Entropy
from remuda.provisioning.host_layout import Layout
from remuda.provisioning.planner.certificate_expiry import of_machine
from remuda.provisioning.planner.snapshot import Machine, Periodic, PlanNode, PlanSecret, RestartServer, RotateKeys
from remuda.provisioning.plans.plan import Plan
from tests.unit.provisioning.planner.render import inputs

# Keys are files; the newest is the active one. `fail`, `late` and `goes-on` make the command behave badly.
_DISTRIBUTION = """\
#!/bin/sh
cd "$(dirname "$0")/state"
asked="$1 $2"
shift 2
echo "$*" >> options
case "$asked" in
    "secrets-encrypt status")
        [ -f late ] && [ "$(cat late)" -gt 0 ] && echo $(($(cat late) - 1)) > late && exit 1
        printf 'Current Rotation Stage: %s\\n *      AES-CBC   %s\\n' "$(cat stage)" "$(ls keys | tail -n 1)" ;;
    "secrets-encrypt rotate-keys")
        [ -f fail ] && echo "hash does not match" >&2 && exit 1
        touch "keys/$(ls keys | wc -l)"
        [ -f goes-on ] && echo "context deadline exceeded" >&2 && exit 1
        echo reencrypt_finished > stage ;;
    *) exit 2 ;;
esac
"""


class Host:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.distribution = directory / "k3s"
        self.state = directory / "state"
        (self.state / "keys").mkdir(parents=True)
        (self.state / "keys/0").touch()
        (self.state / "stage").write_text("start\n")
        self.distribution.write_text(_DISTRIBUTION)
        self.distribution.chmod(0o755)
        # So that no test waits.
        (directory / "bin").mkdir()
        (directory / "bin/sleep").symlink_to("/bin/true")
        for file in (
            self.plan(RestartServer(1, "PostRotateRestart")).files + self.plan(RotateKeys(1, "Rotate", "rotate-keys")).files
        ):
            if "/encryption-key-rotation/bin/" in file.path:
                (directory / file.path.rpartition("/")[2]).write_bytes(file.data)

    def plan(self, task: RestartServer | RotateKeys) -> Plan:
        return inputs.plan(inputs.machine("etcd,control-plane"), inputs.INIT, None, inputs.facts(inputs.K3S), task)

    def run(self, script: str, *words: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        command = ["sh", str(self.directory / script), str(self.distribution), *words]
        return subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, timeout=60, check=False)

    def keys(self) -> int:
        return len(list((self.state / "keys").iterdir()))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_keys_are_rotated_by_one_command(host: Host) -> None:
    assert host.run("rotate_keys.sh").returncode == 0 and host.keys() == 2


def test_a_refusal_is_a_failure_also_after_an_earlier_rotation(host: Host) -> None:
    assert host.run("rotate_keys.sh").returncode == 0
    (host.state / "fail").touch()
    done = host.run("rotate_keys.sh")
    assert done.returncode == 1 and "hash does not match" in done.stderr and host.keys() == 2


@pytest.mark.parametrize("stage", ["reencrypt_active", "reencrypt_request"])
def test_a_client_that_gave_up_is_no_failure_while_the_server_goes_on(host: Host, stage: str) -> None:
    (host.state / "goes-on").touch()
    (host.state / "stage").write_text(f"{stage}\n")
    assert host.run("rotate_keys.sh").returncode == 0


def test_a_client_that_gave_up_is_no_failure_if_there_is_another_key(host: Host) -> None:
    (host.state / "goes-on").touch()
    (host.state / "stage").write_text("reencrypt_finished\n")
    assert host.run("rotate_keys.sh").returncode == 0 and host.keys() == 2


@pytest.mark.parametrize(("late", "code"), [(0, 0), (9, 0), (10, 1)])
def test_an_answer_is_awaited_ten_times(host: Host, late: int, code: int) -> None:
    for script in ("wait_for_secrets_encrypt_status.sh", "secrets_encrypt_status.sh"):
        (host.state / "late").write_text(f"{late}\n")
        assert host.run(script).returncode == code, script


def test_the_distribution_gets_the_options(host: Host) -> None:
    option = ("--data-dir", "/data/it's here")
    for script, words in (
        ("rotate_keys.sh", option),
        ("wait_for_secrets_encrypt_status.sh", option),
        ("secrets_encrypt_status.sh", ("reencrypt_finished", *option)),
    ):
        assert host.run(script, *words).returncode == 0, script
    assert set((host.state / "options").read_text().splitlines()) == {" ".join(option)}
    assert host.run("secrets_encrypt_status.sh").returncode == 0


def test_a_stage_is_awaited(host: Host) -> None:
    assert host.run("secrets_encrypt_status.sh", "start").returncode == 0
    done = host.run("secrets_encrypt_status.sh", "rotate")
    assert done.returncode == 1 and "not at rotate: Current Rotation Stage: start" in done.stderr


# --- certificates -------------------------------------------------------------------------------------------------------------


def test_a_host_prints_its_certificates_and_no_key(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path / "it's here"), "127.4.5.6")
    data = tmp_path / "it's here/var/lib/rancher/k3s"
    entropy = Entropy()
    key = certificates.new_key(entropy)
    ca = certificates.sign_authority(key, SYSTEM_CLOCK, entropy, "k3s-server-ca")
    authority = certificates.Authority(ca, key)
    for name in ("server/tls", "server/tls/etcd", "server/tls/kube-scheduler", "agent", "server/tls-1"):
        (data / name).mkdir(parents=True)
        leaf = certificates.new_key(entropy)
        signed = certificates.sign_leaf(
            authority, leaf, certificates.subject(name), 86_400, ("localhost",), SYSTEM_CLOCK, entropy
        )
        # With its chain, and its key in the same file: neither is printed.
        (data / name / "client-kubelet.crt").write_bytes(signed + certificates.certificate_pem(ca) + certificates.key_pem(leaf))
        (data / name / "client-kubelet.key").write_bytes(certificates.key_pem(leaf))
    (data / "agent/serving-kubelet.crt").write_bytes((data / "agent/client-kubelet.crt").read_bytes())
    (data / "server/tls/broken.crt").write_text("not a certificate\n")
    instruction = inputs.plan(inputs.machine(on=layout), inputs.INIT, None, inputs.facts(inputs.K3S)).periodicInstructions[-1]
    done = subprocess.run([instruction.command, *instruction.args], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stderr == ""
    node = PlanNode(Plan(), periodic={"certificates": Periodic(done.stdout)})
    found = of_machine(Machine("m", "u", PlanSecret("p", node=node)))
    directories = ["agent", "server/tls", "server/tls/etcd", "server/tls/kube-scheduler"]
    expected = [(f"{directory}/client-kubelet.crt", directory, "server") for directory in directories]
    assert [(each.file, each.subject, each.use) for each in found] == sorted(
        [*expected, ("agent/serving-kubelet.crt", "agent", "server")]
    )
    for _, _, content in (line.partition(" ") for line in done.stdout.splitlines()):
        assert b"PRIVATE" not in base64.b64decode(content)
    (data / "agent/client-kubelet.crt").unlink()
    again = subprocess.run([instruction.command, *instruction.args], capture_output=True, timeout=60, check=False)
    assert again.returncode == 1, "so that the agent tries again soon"
