"""`remuda install --systemd` on a host that has systemd: a service that is shut in and works, and that goes without a trace."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import remuda
from tests.e2e.access.namespaces import Namespace
from tests.e2e.serving import eventually
from tests.real import need, systemhost
from tests.real.systemhost import SystemHost

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(900)]

PROGRAM, UNIT, STATE = "/opt/remuda/bin/remuda", "remuda.service", "/var/lib/remuda"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
# What `systemd-analyze security` may say at most; docs/install.md tells it.
EXPOSURE = 2.0
WORKSPACE = "fleet-default"
CONFIGS = f"/apis/rke-machine-config.cattle.io/v1/namespaces/{WORKSPACE}/localconfigs"
CLUSTERS = f"/apis/provisioning.cattle.io/v1/namespaces/{WORKSPACE}/clusters"
CLOUDS = CONFIGS.replace("localconfigs", "digitaloceanconfigs")
MACHINES = f"/apis/rke-machine.cattle.io/v1/namespaces/{WORKSPACE}/localmachines"
SERVER_URL = "/apis/management.cattle.io/v3/settings/server-url"
NAMESPACES = ("/api/v1/namespaces/cattle-global-data", f"/api/v1/namespaces/{WORKSPACE}")
SECRETS, LOGS = "/api/v1/namespaces/cattle-global-data/secrets", f"/api/v1/namespaces/{WORKSPACE}/configmaps"
ROLES = dict.fromkeys(("etcdRole", "controlPlaneRole", "workerRole"), True)
POOLS = [
    {"name": "here", "quantity": 1, **ROLES, "machineConfigRef": {"kind": "LocalConfig", "name": "small"}},
    {"name": "cloud", "quantity": 1, "workerRole": True, "machineConfigRef": {"kind": "DigitaloceanConfig", "name": "far"}},
]
CREDENTIAL = {
    "type": "provisioning.cattle.io/cloud-credential",
    "stringData": {"digitaloceancredentialConfig-accessToken": "of no use here"},
}
SPEC = {
    "kubernetesVersion": "v1.34.1+remuda1",
    "cloudCredentialSecretName": "cattle-global-data:cc-far",
    "rkeConfig": {"machinePools": POOLS},
}


def needed_distributions(name: str, found: dict[str, metadata.Distribution]) -> dict[str, metadata.Distribution]:
    """What of this environment the program needs."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found:
        return found
    found[key] = metadata.distribution(name)
    for text in found[key].requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            needed_distributions(requirement.name, found)
    return found


def installed_as(directory: Path) -> Path:
    """What `pip install` would put into site-packages."""
    packages = directory / "site-packages"
    packages.mkdir()
    for name, distribution in needed_distributions("remuda", {}).items():
        for file in distribution.files or () if name != "remuda" else ():
            source = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
    shutil.copytree(Path(remuda.__file__).parent, packages / "remuda", ignore=shutil.ignore_patterns("__pycache__"))
    return packages


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SystemHost]:
    systemhost.needed()
    with Namespace() as wire, SystemHost("service", wire) as host:
        found = host.said("python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'").strip()
        if found != PYTHON:
            need.absent(f"the host has Python {found}, these tests run with {PYTHON}")
        host.said("python3 -m venv --without-pip /opt/remuda")
        packages = installed_as(tmp_path)
        done = host.podman("cp", f"{packages}/.", f"{host.name}:/opt/remuda/lib/python{PYTHON}/site-packages")
        assert done.returncode == 0, done.stderr
        script = "#!/opt/remuda/bin/python\\nfrom remuda.cli import main\\nmain()\\n"
        host.said(f"printf '{script}' > {PROGRAM} && chmod 755 {PROGRAM}")
        yield host


def send(host: SystemHost, ask: str, path: str, body: object, kind: str = "json") -> None:
    host.said(f"{ask}{path} -H 'Content-Type: application/{kind}' -d '{json.dumps(body)}'")


def named(name: str, version: str, kind: str) -> dict[str, object]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


def ordered(text: str) -> str:
    """Every condition with its type and status first."""
    items = json.loads(text or "{}").get("items") or []
    found = [each for item in items for each in item.get("status", {}).get("conditions") or []]
    return json.dumps([{"type": each["type"], "status": each["status"]} for each in found], separators=(",", ":"))


def test_the_service_works_shut_in_and_goes_without_a_trace(host: SystemHost) -> None:
    files = host.files()
    told = host.said(f"{PROGRAM} install --systemd -- --listen 0.0.0.0:443 --tls-san {host.wire.inside}", 600)
    assert f"{UNIT}: started (serving at https://" in told, told
    assert host.show(UNIT, "User") == "remuda"
    assert host.said(f"stat -c '%U %a' {STATE}").split() == ["remuda", "700"]

    # Shut in, and right in systemd's own eyes.
    verified = host.shell(f"systemd-analyze verify /etc/systemd/system/{UNIT}")
    assert verified.returncode == 0 and UNIT not in verified.stderr, verified.stderr
    (score,) = re.findall(r"exposure level for \S+ ([0-9.]+)", host.said(f"systemd-analyze security --no-pager {UNIT}"))
    assert float(score) <= EXPOSURE
    status = host.said(f"cat /proc/{host.show(UNIT, 'MainPID')}/status")
    assert "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status and "CapBnd:\t0000000000000400" in status

    # It serves on a port of root's, and says who it is.
    ask = f"curl -sf --cacert {STATE}/pki/ca.crt --cert {STATE}/pki/admin.crt --key {STATE}/pki/admin.key"
    assert "gitVersion" in host.said(f"{ask} https://127.0.0.1/version")

    # Again: nothing changes. With other options it says what, and is restarted.
    again = host.said(f"{PROGRAM} install --systemd -- --listen 0.0.0.0:443 --tls-san {host.wire.inside}")
    assert f"/etc/systemd/system/{UNIT}: unchanged" in again and f"{UNIT}: runs" in again
    before = host.show(UNIT, "MainPID")
    other = host.said(f"{PROGRAM} install --systemd -- --listen 0.0.0.0:8443 --tls-san {host.wire.inside}", 600)
    assert "-ExecStart=" in other and "+ExecStart=" in other and f"{UNIT}: restarted" in other
    assert host.show(UNIT, "MainPID") != before

    # Jobs are processes of the service: one makes a machine of the driver `local`; one, which is confined besides, looks for its
    # cloud, and there is no network.
    ask = f"{ask} https://127.0.0.1:8443"
    wanted_first = (*NAMESPACES, CONFIGS, CLOUDS, CLUSTERS, SERVER_URL)
    eventually(lambda: all(host.shell(f"{ask}{path}").returncode == 0 for path in wanted_first), 240)
    send(host, ask.replace("-sf", "-sf -X PATCH"), SERVER_URL, {"value": "https://127.0.0.1:8443"}, "merge-patch+json")
    send(host, ask, CONFIGS, named("small", "rke-machine-config.cattle.io/v1", "LocalConfig"))
    send(host, ask, SECRETS, {**named("cc-far", "v1", "Secret"), **CREDENTIAL})
    wanted = {"region": "nyc1", "size": "s-1vcpu-1gb", "image": "debian-12-x64"}
    send(host, ask, CLOUDS, {**named("far", "rke-machine-config.cattle.io/v1", "DigitaloceanConfig"), **wanted})
    send(host, ask, CLUSTERS, {**named("demo", "provisioning.cattle.io/v1", "Cluster"), "spec": SPEC})
    try:
        eventually(lambda: '"type":"CreateJob","status":"True"' in ordered(host.shell(f"{ask}{MACHINES}").stdout), 180, every=1)
        eventually(lambda: "DigitalOcean can't be reached" in host.shell(f"{ask}{LOGS}").stdout, 180, every=1)
    except AssertionError:
        raise AssertionError(host.shell(f"{ask}{MACHINES}").stdout + host.log(UNIT)) from None
    eventually(lambda: "remuda.hosts.init" in host.shell(f"systemd-cgls --no-pager -l -u {UNIT}").stdout, 180, every=1)

    # Whoever helps gets the journal, and what systemd knows.
    bundle = f"cd /root && {PROGRAM} support-bundle b.tar.gz --listen 127.0.0.1:8443 >/dev/null && tar xOzf b.tar.gz"
    told = host.said(f"{bundle} b/logs/journal.log b/unit.txt b/bundle.json; rm b.tar.gz")
    assert "serves the Kubernetes API" in told and "ActiveState=active" in told and '"missing":[]' in told, told[-3000:]

    # Options with which it can't come up say why, and the service goes on with those that it had.
    host.said("python3 -m http.server 9000 >/dev/null 2>&1 & sleep 0; true")
    eventually(lambda: host.shell("curl -s http://127.0.0.1:9000/").returncode == 0, 60)
    refused = host.shell(f"{PROGRAM} install --systemd -- --listen 0.0.0.0:9000 --tls-san {host.wire.inside}", 600)
    assert refused.returncode == 1
    assert "0.0.0.0:9000 is in use" in refused.stderr and "the former unit is back, and runs" in refused.stderr, refused.stderr
    assert host.show(UNIT, "ActiveState") == "active" and "gitVersion" in host.said(f"{ask}/version")

    # What can't come up says why, in one sentence, and does not go on trying.
    host.said(f"systemctl stop {UNIT}; python3 -m http.server 8443 >/dev/null 2>&1 & sleep 0; true")
    eventually(lambda: host.shell("curl -s http://127.0.0.1:8443/").returncode == 0, 60)
    refused = host.shell(f"{PROGRAM} install --systemd -- --listen 0.0.0.0:8443 --tls-san {host.wire.inside}", 600)
    assert refused.returncode == 1
    assert "did not come up: 0.0.0.0:8443 is in use" in refused.stderr and "Traceback" not in refused.stderr
    assert host.show(UNIT, "ActiveState") in ("inactive", "failed")

    kept = host.said(f"{PROGRAM} uninstall")
    assert f"{STATE}: stays" in kept
    gone = host.said(f"{PROGRAM} uninstall --purge")
    assert f"{STATE}: removed" in gone and "user remuda: removed" in gone
    assert sorted(file for file in host.files() - files if not file.startswith("/opt/remuda/")) == []
    assert host.show(UNIT, "LoadState") == "not-found"
