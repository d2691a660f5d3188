"""Jobs of machines as real pods (`--job-runner=cluster`): `remuda gateway` before a real Kubernetes with a real node.

kube-apiserver, controllers, scheduler, kubelet and containerd are the real ones, in a network of their own. Their node pulls the
image from the gateway, the rules for pods are Kubernetes' strictest, and machines are droplets of :mod:`tests.e2e.clouds.ocean`.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remuda import __version__
from remuda.images import Layout, machine
from remuda.images.debian import DebianError
from remuda.images.layout import cache_directory
from remuda.images.recipe import WheelError
from remuda.machines import machine_state
from remuda.machines.machineprovision.well_known import attempts_name, environment_name, job_name, state_name
from tests.api.harness import Answer
from tests.e2e.access.fronted import MACHINES, Fronted
from tests.e2e.access.harness import MANAGEMENT, Real
from tests.e2e.access.namespaces import Namespace
from tests.e2e.clouds.ocean import TOKEN, Ocean
from tests.e2e.serving import eventually, send
from tests.e2e.test_controllers_command import Replica
from tests.real import need, node

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(1800)]

Obj = dict[str, Any]
FLEET = "fleet-default"
_CORE, _BATCH = f"/api/v1/namespaces/{FLEET}", f"/apis/batch/v1/namespaces/{FLEET}"
_CONFIGS = f"/apis/rke-machine-config.cattle.io/v1/namespaces/{FLEET}/digitaloceanconfigs"
_DROPLETS = f"/apis/rke-machine.cattle.io/v1/namespaces/{FLEET}/digitaloceanmachines"
_CLUSTERS = f"/apis/provisioning.cattle.io/v1/namespaces/{FLEET}/clusters"
_MERGE = "application/merge-patch+json"
# A machine that others use, too, takes its time.
_PATIENCE = 400.0


# --- what there is ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pods")


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    if shutil.which("apt-get") is None:
        need.absent("images are built from Debian's packages")
    if why := node.problem():
        need.absent(why)
    need.programs("kubelet", "containerd", "containerd-shim-runc-v2", "ctr")
    with Namespace() as made:
        yield made


@pytest.fixture(scope="module")
def images(place: Path) -> Path:
    """As `make images` makes it where there is no rancher-machine."""
    try:
        built = machine.build(cache_directory(os.environ) / "downloads", {"PATH": ""})
    except (DebianError, WheelError) as error:
        need.absent(str(error))
    Layout(place / "images" / machine.REPOSITORY).write(built.image, (__version__,))
    return place / "images"


@pytest.fixture(scope="module")
def ocean(namespace: Namespace) -> Iterator[Ocean]:
    """Where pods reach it."""
    with Ocean().beside(namespace.outside) as opened:
        yield opened


@dataclass
class Plane:
    """The control plane's files, which it writes when it starts."""

    directory: Path

    def __post_init__(self) -> None:
        self.kubeconfig = self.directory / "admin.kubeconfig"
        self.ca_pem, self.admin_cert, self.admin_key = (self.directory / name for name in ("ca.crt", "admin.crt", "admin.key"))
        self.url = ""

    def read(self) -> None:
        self.url = json.loads(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]


class Server(Fronted):
    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Obj:
        answer = send(self.endpoint, method, path, body, kind)
        assert answer.status in (200, 201, 202), (method, path, answer.status, answer.body)
        found: Obj = answer.json
        return found

    def got(self, path: str) -> Answer:
        """Asked again where a machine that others use, too, takes longer than a connection is kept for."""
        answers: list[Answer] = []

        def answered() -> bool:
            with contextlib.suppress(OSError, http.client.HTTPException):
                answers.append(self.endpoint.request("GET", path))
            return bool(answers)

        eventually(answered, _PATIENCE, f"{path} is not answered")
        return answers[0]

    def items(self, path: str) -> list[Obj]:
        answer = self.got(path)
        assert answer.status == 200, (path, answer.status, answer.body)
        return list(answer.json["items"])

    def has(self, path: str) -> bool:
        return self.got(path).status == 200

    def remuda(self, *words: str) -> tuple[int, str]:
        """A person's command, through the gateway."""
        kubeconfig = self.administrator().kubeconfig(self.directory)
        command = [sys.executable, "-m", "remuda", *words, "--kubeconfig", str(kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def server(place: Path, namespace: Namespace, images: Path, ocean: Ocean) -> Iterator[Server]:
    environ = {"REMUDA_IMAGES": str(images), "DIGITALOCEAN_API_URL": ocean.way.url}
    environ["CATTLE_WHITELIST_ENVVARS"] = "HTTP_PROXY,HTTPS_PROXY,NO_PROXY,DIGITALOCEAN_API_URL"
    environ["REMUDA_OUTBOUND_POLICY"] = f"allow:{namespace.outside}/32"
    plane = Plane(place / "real" / "cluster")
    gateway = Server(plane, place / "gateway", environ, "--job-runner=cluster", host=namespace.outside)
    # The node trusts the gateway as people's nodes have to; its certificate comes later.
    registry = place / "certs.d" / f"{namespace.outside}:{gateway.port}"
    registry.mkdir(parents=True)
    (registry / "hosts.toml").write_text(f'[host."{gateway.url}"]\nca = "{gateway.ca}"\n')
    options = ["--address", namespace.inside, "--node", "--registries", str(registry.parent)]
    with Real(place / "real", "real", namespace.prefix, options), _core(plane, place, namespace.outside):
        try:
            gateway.start()
            _furnished(gateway)
            yield gateway
            assert gateway.alive, gateway.told()[-8000:]
            assert gateway.tracebacks() == [], gateway.told()[-8000:]
        finally:
            gateway.end()


@contextlib.contextmanager
def _core(plane: Plane, place: Path, host: str) -> Iterator[None]:
    plane.read()
    core = Replica(plane.kubeconfig, place, "controllers", host)
    try:
        eventually(lambda: core.ready, _PATIENCE, "Cluster API's core is not there")
        yield
    finally:
        core.end()


def _furnished(server: Server) -> None:
    server.there(MACHINES)
    server.there(f"{MANAGEMENT}/globalroles/admin")
    server.announced()
    for path in (_CONFIGS, _DROPLETS, f"/api/v1/namespaces/{FLEET}", "/api/v1/namespaces/cattle-global-data"):
        eventually(lambda path=path: server.has(path), _PATIENCE)  # type: ignore[misc]
    # From now on Kubernetes itself refuses a pod that asks for more than it must.
    labels = {f"pod-security.kubernetes.io/{each}": "restricted" for each in ("enforce", "warn")}
    server.ask("PATCH", f"/api/v1/namespaces/{FLEET}", {"metadata": {"labels": labels}}, _MERGE)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ocean"}}
    secret["data"] = {"digitaloceancredentialConfig-accessToken": base64.b64encode(TOKEN.encode()).decode()}
    server.ask("POST", "/api/v1/namespaces/cattle-global-data/secrets", secret)
    # Of a Service with such a name a pod would be told as of the driver's option for the port of SSH.
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "digitalocean-ssh"}, "spec": {"ports": [{"port": 1}]}}
    server.ask("POST", f"{_CORE}/services", service)


# --- steps --------------------------------------------------------------------------------------------------------------------


def _declare(server: Server, name: str) -> None:
    config = {"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "DigitaloceanConfig", "metadata": {"name": name}}
    server.ask("POST", _CONFIGS, config)
    roles = dict.fromkeys(("etcdRole", "controlPlaneRole", "workerRole"), True)
    pool = {"name": "all", "quantity": 1, **roles, "machineConfigRef": {"kind": "DigitaloceanConfig", "name": name}}
    spec = {
        "kubernetesVersion": "v1.34.1+remuda1",
        "cloudCredentialSecretName": "cattle-global-data:ocean",
        "rkeConfig": {"machinePools": [pool]},
    }
    cluster = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec}
    server.ask("POST", _CLUSTERS, cluster)


def _gone(server: Server, name: str, ocean: Ocean) -> None:
    """Asked to go, it goes, and leaves nothing: neither there nor here."""
    server.ask("DELETE", f"{_CLUSTERS}/{name}")
    eventually(lambda: not server.has(f"{_CLUSTERS}/{name}"), _PATIENCE, f"{name} does not go")
    assert ocean.left() == {}
    assert server.items(_DROPLETS) == []
    for path in (f"{_BATCH}/jobs", f"{_CORE}/pods"):
        eventually(lambda path=path: server.items(path) == [], _PATIENCE, f"something is left of {path}")  # type: ignore[misc]
    for path in (f"{_CORE}/secrets", f"{_CORE}/serviceaccounts", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{FLEET}/roles"):
        eventually(lambda path=path: not _of_jobs(server, path), _PATIENCE, f"something is left of {path}")  # type: ignore[misc]


def _of_jobs(server: Server, path: str) -> list[str]:
    names = [str(each["metadata"]["name"]) for each in server.items(path)]
    return [name for name in names if name.endswith(("-machine-provision", "-machine-state", "-machine-driver-secret"))]


def _infra(server: Server) -> Obj:
    """The only machine."""
    eventually(lambda: len(server.items(_DROPLETS)) == 1, _PATIENCE, "there is no machine")
    return server.items(_DROPLETS)[0]


def _condition(server: Server, kind: str) -> Obj:
    found = server.items(_DROPLETS)
    conditions = (found[0].get("status") or {}).get("conditions") or [] if len(found) == 1 else []
    return next((dict(each) for each in conditions if each["type"] == kind), {})


def _told(server: Server) -> str:
    """For a person who has to find out why a test failed."""
    pods = [{"status": each.get("status"), "name": each["metadata"]["name"]} for each in server.items(f"{_CORE}/pods")]
    events = [each.get("message") for each in server.items(f"{_CORE}/events")][-30:]
    return json.dumps({"pods": pods, "machines": server.items(_DROPLETS), "events": events}, indent=1)[-12000:]


def _until(server: Server, true: Any, why: str) -> None:
    try:
        eventually(true, _PATIENCE, why, every=0.2)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{_told(server)}") from None


# --- tests --------------------------------------------------------------------------------------------------------------------


def test_a_pod_that_can_not_start_says_why_and_is_not_waited_for(server: Server, ocean: Ocean) -> None:
    before = len(ocean.way.calls)
    server.setting("machine-provision-image", f"{machine.REPOSITORY}:nowhere")
    try:
        _declare(server, "stuck")
        said = "its pod does not start: "
        _until(server, lambda: said in _condition(server, "Ready").get("message", ""), "nobody says why nothing happens")
        assert ":nowhere" in _condition(server, "Ready")["message"]
        _gone(server, "stuck", ocean)
    finally:
        server.setting("machine-provision-image", "")
    assert "POST /v2/droplets" not in ocean.way.calls[before:]


def test_a_pool_is_made_and_removed_by_pods(server: Server, ocean: Ocean) -> None:
    ocean.limit = 0
    _declare(server, "demo")
    # What failed is replaced; why it failed is kept.
    _until(server, lambda: server.has(f"{_CORE}/configmaps/{attempts_name('demo', 'all')}"), "nobody tells of an attempt")
    ocean.limit = 10
    code, said = server.remuda("machine", "attempts", "demo")
    assert code == 0 and "QuotaExceeded" in said, said
    _until(server, lambda: _condition(server, "CreateJob").get("status") == "True", "no pod has made a machine")
    infra = _infra(server)
    name = infra["metadata"]["name"]
    (droplet,) = ocean.droplets.values()
    assert droplet["name"] == name
    job = server.ask("GET", f"{_BATCH}/jobs/{job_name(name)}")
    assert job["status"]["succeeded"] == 1 and job["metadata"]["uid"] in json.dumps(infra["metadata"]["annotations"])
    pods = [
        each
        for each in server.items(f"{_CORE}/pods")
        if job["metadata"]["uid"] in json.dumps(each["metadata"]["ownerReferences"])
    ]
    _tight(server, *pods)
    _narrow(server, name)
    state = server.ask("GET", f"{_CORE}/secrets/{state_name(name)}")
    kept = machine_state.read(base64.b64decode(state["data"][machine_state.KEY]), name)[1]
    assert {"config.json", "id_rsa", "id_rsa.pub"} <= set(kept)
    code, said = server.remuda("machine", "logs", infra["metadata"]["labels"]["rke.cattle.io/capi-machine-name"])
    assert code == 0 and f"{name} is made, at " in said, said
    assert TOKEN not in said and TOKEN not in json.dumps([*pods, job, infra])
    _gone(server, "demo", ocean)


def _tight(server: Server, pod: Obj) -> None:
    """What kubelet and containerd made of it: the image is the server's, and nothing of the node is in it."""
    spec = pod["spec"]
    (container,) = spec["containers"]
    assert container["image"] == f"{server.host}:{server.port}/{machine.REPOSITORY}:{__version__}"
    assert pod["status"]["containerStatuses"][0]["imageID"].startswith(
        f"{server.host}:{server.port}/{machine.REPOSITORY}@sha256:"
    )
    assert not any(spec.get(each) for each in ("hostNetwork", "hostPID", "hostIPC", "initContainers"))
    kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
    assert kinds == {"secret", "emptyDir", "projected"}
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] and security["runAsNonRoot"] and security["runAsUser"] == machine.USER
    assert not security["allowPrivilegeEscalation"] and not security.get("privileged")
    assert security["capabilities"] == {"drop": ["ALL"]}


def _narrow(server: Server, name: str) -> None:
    """Its account may read and write its one Secret, as the API server itself says, and not those beside it."""
    may = {"get": True, "update": True, "list": False, "delete": False, "patch": False}
    for verb, allowed in may.items():
        assert _may(server, name, verb, state_name(name)) is allowed, verb
    for other in (environment_name(name), job_name(name), ""):
        assert not _may(server, name, "get", other), other


def _may(server: Server, name: str, verb: str, secret: str) -> bool:
    asked = {"namespace": FLEET, "verb": verb, "resource": "secrets", "name": secret}
    account = f"system:serviceaccount:{FLEET}:{job_name(name)}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{FLEET}", "system:authenticated"]
    spec = {"resourceAttributes": asked, "user": account, "groups": groups}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = server.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def test_a_pod_that_makes_a_machine_is_interrupted_and_the_machine_removed(server: Server, ocean: Ocean) -> None:
    # It never gets an address, so that its pod would wait for long.
    ocean.starting = 1_000_000
    before = len(ocean.way.calls)
    _declare(server, "short")
    _until(server, lambda: len(ocean.droplets) == 1, "no pod makes a machine")
    _gone(server, "short", ocean)
    ocean.starting = 0
    calls = ocean.way.calls[before:]
    assert calls.count("POST /v2/droplets") == 1 and "DELETE /v2/droplets/ID" in calls
