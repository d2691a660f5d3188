"""The image of Jobs that make machines: built here, pulled from the server, and run from what was pulled, as a Job's pod would.

The pod's file system is a directory with the image's layers in it, entered by chroot as the image's own user; arguments,
variables, files and account are those of the Job that the server made. Only a kubelet and a Job's controller are missing: their
work is done here.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda import __version__
from remuda.images import Layout, machine
from remuda.images.debian import DebianError
from remuda.images.layout import cache_directory
from remuda.images.recipe import WheelError
from remuda.machines import machine_state
from tests.e2e.access.harness import Gateway
from tests.e2e.clouds.ocean import TOKEN, Ocean
from tests.e2e.serving import eventually, send
from tests.real import need

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

Obj = dict[str, Any]
FLEET, NAME = "fleet-default", "demo"
ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"
CREDENTIAL = "cattle-global-data:ocean"
_CONFIGS = f"/apis/rke-machine-config.cattle.io/v1/namespaces/{FLEET}/digitaloceanconfigs"
_MACHINES = f"/apis/rke-machine.cattle.io/v1/namespaces/{FLEET}/digitaloceanmachines"
_CLUSTERS = f"/apis/provisioning.cattle.io/v1/namespaces/{FLEET}/clusters"
_JOBS = f"/apis/batch/v1/namespaces/{FLEET}/jobs"
# A machine that others use, too, takes its time.
_PATIENCE = 240.0


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the image, as `make images` makes it, with the real rancher-machine in it."""
    if shutil.which("apt-get") is None:
        need.absent("images are built from Debian's packages")
    if os.geteuid() != 0:
        need.absent("only root may chroot")
    directory = tmp_path_factory.mktemp("images")
    environ = {"PATH": str(need.programs("rancher-machine")["rancher-machine"].parent)}
    try:
        built = machine.build(cache_directory(os.environ) / "downloads", environ)
    except (DebianError, WheelError) as error:
        need.absent(str(error))
    Layout(directory / machine.REPOSITORY).write(built.image, (__version__, "latest"))
    assert [about for about, _, _ in built.summary][2] == "rancher-machine"
    assert sum(packed for about, _, packed in built.summary if about != "rancher-machine") < 40_000_000
    return directory


class Server(Gateway):
    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Obj:
        answer = send(self.endpoint, method, path, body, kind)
        assert answer.status in (200, 201, 202), (method, path, answer.status, answer.body)
        found: Obj = answer.json
        return found

    def has(self, path: str) -> bool:
        return self.endpoint.request("GET", path).status == 200

    def secret(self, name: str) -> dict[str, bytes]:
        data = self.ask("GET", f"/api/v1/namespaces/{FLEET}/secrets/{name}").get("data") or {}
        return {key: base64.b64decode(value) for key, value in data.items()}


@pytest.fixture(scope="module")
def root(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image's layers, pulled from a server over TLS by somebody else's client and unpacked in order."""
    skopeo = shutil.which("skopeo") or need.absent("skopeo is not installed: make test-deps")
    directory = tmp_path_factory.mktemp("pulled")
    with Gateway(directory / "server", environ={"REMUDA_IMAGES": str(images)}) as gateway:
        trusted = directory / "trusted"
        trusted.mkdir()
        shutil.copy(gateway.ca, trusted / "ca.crt")
        policy = directory / "policy.json"
        policy.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        source = f"docker://127.0.0.1:{gateway.port}/{machine.REPOSITORY}:{__version__}"
        options = ["--policy", str(policy), "copy", "-q", "--src-cert-dir", str(trusted)]
        subprocess.run([skopeo, *options, source, f"dir:{directory / 'image'}"], check=True, timeout=180)
    root = directory / "root"
    root.mkdir()
    manifest = json.loads((directory / "image" / "manifest.json").read_text())
    for layer in manifest["layers"]:
        with tarfile.open(directory / "image" / layer["digest"].removeprefix("sha256:")) as unpacked:
            unpacked.extractall(root, filter="fully_trusted")
    # As a kubelet does it for every container.
    (root / "dev").mkdir()
    os.mknod(root / "dev/null", 0o020666, os.makedev(1, 3))
    (root / "dev/null").chmod(0o666)
    # The way in, which is below directories that only root may enter.
    for each in (directory, root):
        each.chmod(0o755)
    yield root
    (root / "dev/null").unlink()


class Pod:
    """What a kubelet makes of the only container of a Job's pod, in the image's file system."""

    def __init__(self, server: Server, root: Path, job: Obj) -> None:
        self.server = server
        self.root = root
        self.spec = job["spec"]["template"]["spec"]
        (self.container,) = self.spec["containers"]

    def run(self) -> tuple[int, str, str]:
        """Its exit code, what it said, and its last words."""
        for mount in self.container.get("volumeMounts") or []:
            self._mount(mount)
        self._account()
        log = self.root / "dev/termination-log"
        log.touch()
        log.chmod(0o666)
        environ = {"PATH": "/usr/local/bin:/usr/bin", "HOME": "/home/machine", "SSL_CERT_DIR": "/etc/rancher/ssl"}
        for source in self.container["envFrom"]:
            environ |= {key: value.decode() for key, value in self.server.secret(source["secretRef"]["name"]).items()}
        environ |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.server.port)}
        done = run(self.root, self.container["args"], environ, self.container["securityContext"])
        return done.returncode, done.stderr, log.read_text()

    def _mount(self, mount: Obj) -> None:
        found = next(each for each in self.spec["volumes"] if each["name"] == mount["name"])
        if "emptyDir" in found:
            # The image has a directory there, in which everybody may write.
            assert (self.root / mount["mountPath"].lstrip("/")).stat().st_mode & 0o777 == 0o777
            return
        volume = found["secret"]
        content = self.server.secret(volume["secretName"])
        where = self.root / mount["mountPath"].lstrip("/")
        if "subPath" in mount:
            content, where = {where.name: content[mount["subPath"]]}, where.parent
        where.mkdir(parents=True, exist_ok=True)
        for name, value in content.items():
            (where / name).write_bytes(value)
            (where / name).chmod(volume["defaultMode"])

    def _account(self) -> None:
        """Of the Job and of nobody else."""
        name = self.spec["serviceAccountName"]
        path = f"/api/v1/namespaces/{FLEET}/serviceaccounts/{name}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.server.ask("POST", path, asked)["status"]["token"]
        where = self.root / ACCOUNT
        where.mkdir(parents=True, exist_ok=True)
        for file, text in (("token", token), ("ca.crt", self.server.ca.read_text()), ("namespace", FLEET)):
            (where / file).write_text(text)


def run(root: Path, words: list[str], environ: dict[str, str], user: Obj) -> subprocess.CompletedProcess[str]:
    """The image's entry point in its file system, and in its home."""
    who = f"--userspec={user['runAsUser']}:{user['runAsGroup']}"
    command = ["/usr/sbin/chroot", who, "--groups=", str(root), *machine.settings()["Entrypoint"], *words]  # type: ignore[misc]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=_PATIENCE, check=False)


def test_a_pool_of_droplets_made_by_pods(images: Path, root: Path, tmp_path: Path) -> None:
    async def story() -> None:
        async with Ocean().open() as ocean:
            environ = {"REMUDA_IMAGES": str(images), "DIGITALOCEAN_API_URL": ocean.way.url}
            environ["CATTLE_WHITELIST_ENVVARS"] = "HTTP_PROXY,HTTPS_PROXY,NO_PROXY,DIGITALOCEAN_API_URL"
            environ["REMUDA_OUTBOUND_POLICY"] = "allow:127.0.0.0/8"
            with Server(tmp_path / "server", "--controllers=*", "--job-runner=cluster", environ=environ) as server:
                await asyncio.to_thread(_made_and_removed, server, root, ocean)
                assert server.tracebacks() == [], server.told()[-8000:]

    asyncio.run(story())


def _made_and_removed(server: Server, root: Path, ocean: Ocean) -> None:
    _declare(server)
    job = _job(server, "false")
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"127.0.0.1:{server.port}/{machine.REPOSITORY}:{__version__}"
    assert TOKEN not in json.dumps(job)
    code, said, _ = Pod(server, root, job).run()
    assert code == 0, said
    (droplet,) = ocean.droplets.values()
    name = job["metadata"]["labels"]["rke.cattle.io/infra-machine-name"]
    assert droplet["name"] == name
    kept = machine_state.read(server.secret(f"{name}-machine-state")[machine_state.KEY], name)[1]
    assert {"config.json", "id_rsa", "id_rsa.pub"} <= set(kept)
    # Killed and begun again: it is the same one.
    assert Pod(server, root, job).run()[0] == 0 and len(ocean.droplets) == 1
    _end(server, job)
    infra = f"{_MACHINES}/{name}"
    eventually(lambda: _condition(server.ask("GET", infra), "Ready") == "True", _PATIENCE)
    server.ask("DELETE", f"{_CLUSTERS}/{NAME}")
    job = _job(server, "true")
    code, said, _ = Pod(server, root, job).run()
    assert code == 0, said
    assert ocean.left() == {}
    _end(server, job)
    eventually(lambda: not server.has(infra), _PATIENCE)


def _declare(server: Server) -> None:
    for path in (_CONFIGS, _MACHINES, f"/api/v1/namespaces/{FLEET}", "/api/v1/namespaces/cattle-global-data"):
        eventually(lambda path=path: server.has(path), _PATIENCE)  # type: ignore[misc]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ocean"}}
    text = base64.b64encode(TOKEN.encode()).decode()
    secret["data"] = {"digitaloceancredentialConfig-accessToken": text}
    server.ask("POST", "/api/v1/namespaces/cattle-global-data/secrets", secret)
    config = {"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "DigitaloceanConfig", "metadata": {"name": "small"}}
    server.ask("POST", _CONFIGS, config)
    roles = dict.fromkeys(("etcdRole", "controlPlaneRole", "workerRole"), True)
    pool = {"name": "all", "quantity": 1, **roles, "machineConfigRef": {"kind": "DigitaloceanConfig", "name": "small"}}
    spec = {
        "kubernetesVersion": "v1.34.1+remuda1",
        "cloudCredentialSecretName": CREDENTIAL,
        "rkeConfig": {"machinePools": [pool]},
    }
    made = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": {"name": NAME}, "spec": spec}
    assert server.posted(_CLUSTERS, made).status == 201


def _job(server: Server, removes: str) -> Obj:
    """The one that makes the machine, or removes it, as soon as the machine says that it is its own."""
    found: list[Obj] = []

    def there() -> bool:
        listed = server.ask("GET", f"{_JOBS}?labelSelector=rke.cattle.io/infra-remove={removes}")["items"]
        recorded = json.dumps(server.ask("GET", _MACHINES))
        found[:] = [each for each in listed if each["metadata"]["uid"] in recorded]
        return len(found) == 1

    eventually(there, _PATIENCE, "there is no Job")
    return found[0]


def _end(server: Server, job: Obj) -> None:
    """What its controller says once its pod has ended well."""
    name, now = job["metadata"]["name"], job["metadata"]["creationTimestamp"]
    ended = [
        {"type": kind, "status": "True", "lastTransitionTime": now, "lastProbeTime": now}
        for kind in ("SuccessCriteriaMet", "Complete")
    ]
    status = {"conditions": ended, "succeeded": 1, "startTime": now, "completionTime": now}
    server.ask("PATCH", f"{_JOBS}/{name}/status", {"status": status}, "application/merge-patch+json")


def _condition(infra: Obj, kind: str) -> str:
    conditions = (infra.get("status") or {}).get("conditions") or []
    return next((str(each["status"]) for each in conditions if each["type"] == kind), "")


def test_a_driver_that_is_not_in_python_finds_its_program(root: Path) -> None:
    environ = {"PATH": "/usr/local/bin:/usr/bin", "HOME": "/home/machine", "REMUDA_OUTBOUND_POLICY": "allow:127.0.0.0/8"}
    user = {"runAsUser": machine.USER, "runAsGroup": machine.USER}
    made = run(root, ["create", "--driver=none", "--url=tcp://127.0.0.1:1", "m1"], environ, user)
    assert "rancher-machine is not here" not in made.stderr
    assert (root / "home/machine/.docker/machine/machines/m1/config.json").is_file(), made.stderr
    assert run(root, ["rm", "-y", "m1"], environ, user).returncode == 0
