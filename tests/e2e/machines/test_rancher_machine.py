"""The real rancher-machine behind `remuda provision`: its drivers, its state in a Secret, and our state in its hands."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.machines import machine_state
from remuda.machines.errors import Reason
from tests.e2e.serving import Served
from tests.integration.machines.drivers.ssh_host import SshHost
from tests.real import need
from tests.unit.machines.program_output import parsed

pytestmark = pytest.mark.real
Obj = dict[str, Any]
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def program() -> Path:
    return need.programs("rancher-machine")["rancher-machine"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("server"))
    served.start()
    try:
        yield served
    finally:
        served.end()


# The hosts of these tests are on this machine.
ALLOWED = {"REMUDA_OUTBOUND_POLICY": "allow:127.0.0.0/8"}


class Jobs:
    """Runs of the program, each with files of its own, on one state Secret."""

    def __init__(self, server: Served, program: Path, directory: Path, name: str) -> None:
        self.server = server
        self.name = name
        self.script = directory / "value"
        self.script.write_text("#!/bin/sh\necho install\n")
        self.environ = {**os.environ, **ALLOWED, "HOME": str(directory), "PATH": f"{program.parent}:{os.environ['PATH']}"}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "rke.cattle.io/machine-state"}
        assert (
            server.endpoint.request("POST", "/api/v1/namespaces/default/secrets", json.dumps(secret).encode(), JSON).status == 201
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        state = [f"--kubeconfig={self.server.kubeconfig}", "--secret-namespace=default", f"--secret-name={self.name}"]
        command = [sys.executable, "-m", "remuda", "provision", "--driver-download-url=", "--driver-hash=", *state, *words]
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=240, check=False)

    def files(self, machine: str) -> tuple[str, dict[str, bytes]]:
        found = self.server.endpoint.request("GET", f"/api/v1/namespaces/default/secrets/{self.name}").json
        return machine_state.read(base64.b64decode(found["data"]["extractedConfig"]), machine)


def test_a_driver_that_only_it_has(server: Served, program: Path, tmp_path: Path) -> None:
    jobs = Jobs(server, program, tmp_path, "none-state")
    done = jobs.run("create", "--driver=none", f"--custom-install-script={jobs.script}", "--url=tcp://127.0.0.1:1", "m-1")
    assert done.returncode == 0, done.stderr
    home, files = jobs.files("m-1")
    assert json.loads(files["config.json"])["Driver"]["URL"] == "tcp://127.0.0.1:1"
    assert not Path(home).exists()
    # In another place, as every Job has.
    done = jobs.run("rm", "-y", "--update-config", "m-1")
    assert done.returncode == 0, done.stderr
    assert jobs.files("m-1")[1] == {}


def test_its_own_words_are_the_reason(server: Served, program: Path, tmp_path: Path) -> None:
    jobs = Jobs(server, program, tmp_path, "wrong-state")
    done = jobs.run("create", "--driver=none", "m-1")
    assert done.returncode == 1
    failure = parsed(done.stderr)
    assert failure.reason is Reason.INVALID
    assert "--url option is required when no driver is selected" in failure.message
    done = jobs.run("create", "--driver=nobodyknows", "m-1")
    assert done.returncode == 1 and "nobodyknows" in parsed(done.stderr).message


async def test_it_understands_what_we_made(program: Path, tmp_path: Path) -> None:
    async with SshHost(tmp_path / "host") as host:
        claim = f"from remuda.machines.drivers.generic import Generic; Generic.claim = {str(host.claim)!r}"
        ours = f"import sys; {claim}; from remuda.machines.provisioner.program import main; sys.exit(main(sys.argv[1:]))"
        words = ["--generic-ip-address=127.0.0.1", f"--generic-ssh-port={host.port}", f"--generic-ssh-key={host.key}", "m-1"]
        made = await _run(sys.executable, "-c", ours, "-s", str(tmp_path / "s"), "create", "--driver=generic", *words)
        assert made[0] == 0, made
        theirs = [str(program), "-s", str(tmp_path / "s")]
        code, said = await _run(*theirs, "status", "m-1")
        # Whatever its plugins have to say comes after.
        assert (code, said.split()[0]) == (0, "Running")
        code, said = await _run(*theirs, "inspect", "m-1")
        found = json.JSONDecoder().raw_decode(said)[0]
        assert (code, found["Driver"]["IPAddress"], found["Driver"]["SSHPort"]) == (0, "127.0.0.1", host.port)
        assert (await _run(*theirs, "rm", "-y", "--update-config", "m-1"))[0] == 0
        assert list((tmp_path / "s" / "machines").iterdir()) == []


async def _run(*command: str) -> tuple[int, str]:
    environ = {**os.environ, **ALLOWED}
    process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode().strip()
