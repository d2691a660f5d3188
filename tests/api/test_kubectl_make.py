"""kubectl's generators and its small editors: create …, run, expose, set; and what services are given."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from .builders import deployment
from .harness import OURS, REAL
from .kubectl import Kubectl
from .recording import attempts
from .zoo import SERVER_ADDRESS, await_server_address, service


def write_certificate(directory: Path) -> None:
    """`tls.crt` and `tls.key`, the same in each run."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + timedelta(days=36500)).sign(key, None)
    (directory / "tls.crt").write_bytes(made.public_bytes(Encoding.PEM))
    (directory / "tls.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ("deployment x --image=example.com/a:1 --replicas=2 --port=80", "deploy/x"),
        ("deployment x --image=example.com/a:1 --image=example.com/b:1", "deploy/x"),
        ("job x --image=example.com/a:1 -- sleep 1", "job/x"),
        ("cronjob x --image=example.com/a:1 --schedule='*/1 * * * *'", "cronjob/x"),
        ("cronjob x --image=example.com/a:1 --schedule=nope", ""),
        ("role x --verb=get,list --resource=pods,deployments.apps --resource-name=a", "role/x"),
        ("role x --verb=get --resource=pods/log", "role/x"),
        ("role x --verb=get --resource=nopes", ""),
        ("clusterrole {ns}-x --verb=get --non-resource-url=/logs/*", "clusterrole/{ns}-x"),
        ("clusterrole {ns}-y --aggregation-rule=a=b", "clusterrole/{ns}-y"),
        ("rolebinding x --clusterrole=view --user=u --group=g --serviceaccount={ns}:default", "rolebinding/x"),
        ("clusterrolebinding {ns}-x --clusterrole=view --user=u", "clusterrolebinding/{ns}-x"),
        ("quota x --hard=cpu=1,pods=3 --scopes=NotTerminating", "quota/x"),
        ("quota x --hard=cpu=nope", ""),
        ("pdb x --selector=app=a --min-available=1", "pdb/x"),
        ("pdb x --selector=app=a --max-unavailable=50%", "pdb/x"),
        ("pdb x --selector=app=a --max-unavailable=50% --min-available=1", ""),
        ("ingress x --rule=a.example.com/p*=svc:80,tls=t --class=c", "ingress/x"),
        ("ingress x --rule=nope", ""),
        ("configmap x --from-literal=a=b --from-literal=c=d", "cm/x"),
        ("configmap x --from-literal=a=b --from-literal=a=d", ""),
        ("configmap x --from-file=f=note.txt", "cm/x"),
        ("secret generic x --from-literal=a=b", "secret/x"),
        ("secret generic x --from-literal=a=b --type=example.com/t", "secret/x"),
        ("secret generic x --from-literal=a=b --type=kubernetes.io/basic-auth", ""),
        ("secret docker-registry x --docker-server=r --docker-username=u --docker-password=p", "secret/x"),
        ("secret tls x --cert=tls.crt --key=tls.key", "secret/x"),
        ("secret tls x --cert=note.txt --key=note.txt", ""),
        ("serviceaccount x", "sa/x"),
        ("service clusterip x --tcp=80:8080", "svc/x"),
        ("service clusterip x --clusterip=None", "svc/x"),
        ("service nodeport x --tcp=80:8080", "svc/x"),
        ("service nodeport x --tcp=80 --node-port=29999", ""),
        ("service loadbalancer x --tcp=80:8080", "svc/x"),
        ("service externalname x --external-name=a.example.com", "svc/x"),
        ("priorityclass {ns}-x --value=10 --description=d", "priorityclass/{ns}-x"),
        ("priorityclass {ns}-x --value=2000000000", ""),
        ("namespace {ns}-x", "ns/{ns}-x"),
        ("namespace Bad_Name", ""),
    ],
)
def test_create_generator(kubectl: Kubectl, args: str, what: str) -> None:
    (kubectl.directory / "note.txt").write_text("a note\n")
    if " tls " in args and "tls.crt" in args:
        write_certificate(kubectl.directory)
    kubectl("create", *shlex.split(args), code=0 if what else 1)
    if not what:
        return
    if what == "pdb/x":
        # A controller counts its pods, and tells that there are none, each in its own time.
        kubectl.until("get", what, "-o", "yaml", shows="observedGeneration: 1")
        kubectl.until("describe", what, shows="NoPods")
    if what.startswith("quota/"):
        kubectl.until("get", what, "-o", "yaml", shows="used:")
    kubectl("get", what, "-o", "yaml", "--show-managed-fields", code=0)
    kubectl("describe", what, code=0)
    if "{ns}-" in what:
        kubectl("delete", what, "--wait=false", code=0)


def test_create_job_from_cronjob(kubectl: Kubectl) -> None:
    kubectl("create", "cronjob", "x", "--image=example.com/a:1", "--schedule=0 0 * * *", code=0)
    kubectl("create", "job", "y", "--from=cronjob/x", code=0)
    kubectl("get", "job", "y", "-o", "yaml", code=0)


@pytest.mark.parametrize(
    "args",
    [
        "run x --image=example.com/a:1",
        "run x --image=example.com/a:1 --port=80 --env=A=b --labels=a=b -- cmd arg",
        "run x --image=example.com/a:1 --restart=Never",
        "run x --image=example.com/a:1 --expose --port=80",
        "run X --image=example.com/a:1",
        "run x --image=",
        "run x --image=example.com/a:1 --dry-run=server -o yaml",
    ],
)
def test_run(kubectl: Kubectl, args: str) -> None:
    kubectl(*shlex.split(args))
    kubectl("get", "pod,svc", "-o", "yaml", "--show-managed-fields", code=0)


@pytest.mark.parametrize(
    "args",
    [
        "expose deploy d --port=80 --target-port=8080",
        "expose deploy d --port=80 --type=NodePort --name=e",
        "expose deploy d --port=80 --cluster-ip=None",
        "expose deploy d --port=80 --type=LoadBalancer --session-affinity=ClientIP",
        "expose deploy d",
        "expose deploy nope --port=80",
        "expose cm kube-root-ca.crt --port=80",
    ],
)
def test_expose(kubectl: Kubectl, args: str) -> None:
    kubectl.apply(deployment("d"))
    kubectl(*shlex.split(args))
    kubectl("get", "svc", "-o", "yaml", code=0)


@pytest.mark.parametrize(
    "args",
    [
        "set image deploy/d c=example.com/c:2",
        "set image deploy/d nope=example.com/c:2",
        "set image deploy/d *=example.com/c:3",
        "set env deploy/d A=b C=d",
        "set env deploy/d --list",
        "set env deploy/d --from=cm/kube-root-ca.crt --prefix=P_",
        "set env deploy/d A-",
        "set resources deploy/d --limits=cpu=200m,memory=512Mi --requests=cpu=100m",
        "set resources deploy/d --limits=cpu=1 --requests=cpu=2",
        "set serviceaccount deploy/d default",
        "set selector svc/s a=b",
        "set subject rolebinding/rb --user=u2",
    ],
)
def test_set(kubectl: Kubectl, args: str) -> None:
    kubectl.apply(deployment("d"), service("s"))
    kubectl("create", "rolebinding", "rb", "--clusterrole=view", "--user=u", code=0)
    kubectl(*shlex.split(args))
    kubectl("get", "deploy/d", "svc/s", "rolebinding/rb", "-o", "yaml", "--show-managed-fields", code=0)


# --- what services are given -----------------------------------------------------------------------------------------


def test_two_services_never_share_an_address(kubectl: Kubectl) -> None:
    kubectl.apply(*(service(f"s{index}") for index in range(8)))
    for each in kubectl("get", "svc", "-o", "jsonpath={.items[*].spec.clusterIP}").values():
        assert len(set(each.out.split())) == 8


# Each test takes another: kube-apiserver's repair loop may hold an address for a minute after its service is gone.
FIRST_ADDRESS = {"test_service_addresses": 100, "test_service_addresses_on_dry_run": 120}
TAKEN = "{taken}"


@dataclass
class Crowded:
    """A named address and a named node port are taken, both of those that nobody is given by chance."""

    kubectl: Kubectl
    address: str

    def service(self, spec: dict[str, object]) -> dict[str, object]:
        return service("x", **{name: self.address if value == TAKEN else value for name, value in spec.items()})


@pytest.fixture
def crowded(kubectl: Kubectl, request: pytest.FixtureRequest) -> Iterator[Crowded]:
    address = f"10.96.0.{FIRST_ADDRESS[request.node.originalname] + request.node.callspec.indices['spec']}"
    taken = [service("one", clusterIP=address), service("two", type="NodePort", ports=[{"port": 80, "nodePort": 30081}])]
    kubectl.apply(*taken)
    yield Crowded(kubectl, address)
    kubectl("delete", "svc", "--all", compare=False)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"clusterIP": TAKEN}, id="taken"),
        pytest.param({"clusterIP": SERVER_ADDRESS}, id="of the server"),
        pytest.param({"clusterIP": "10.200.0.1"}, id="out of range"),
        pytest.param({"clusterIP": "10.96.0.0"}, id="network address"),
        pytest.param({"clusterIP": "nope"}, id="no address"),
        pytest.param({"clusterIP": "::1"}, id="IPv6"),
        pytest.param({"clusterIPs": ["10.96.0.201"]}, id="only the plural"),
        pytest.param({"clusterIP": "10.96.0.202", "clusterIPs": ["10.96.0.203"]}, id="two that differ"),
        pytest.param({"clusterIP": "None", "type": "NodePort"}, id="headless with node port"),
        pytest.param({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30081}]}, id="node port taken"),
        pytest.param({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}, id="node port out of range"),
        pytest.param({"ports": [{"port": 80, "nodePort": 30082}]}, id="node port without the type"),
        pytest.param({"type": "ExternalName", "externalName": "a.b", "clusterIP": "10.96.0.204"}, id="external with address"),
        pytest.param({"ipFamilyPolicy": "RequireDualStack"}, id="dual stack"),
        pytest.param({"ipFamilyPolicy": "PreferDualStack"}, id="maybe dual stack"),
        pytest.param({"ipFamilies": ["IPv6"]}, id="other family"),
        pytest.param({"clusterIP": "None", "selector": None}, id="headless without selector"),
        pytest.param({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}, id="health check port"),
        pytest.param({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}, id="balancer without node ports"),
        pytest.param(
            {
                "type": "NodePort",
                "ports": [
                    {"name": "a", "port": 53, "protocol": "UDP"},
                    {"name": "b", "port": 53, "protocol": "TCP"},
                ],
            },
            id="one node port for two protocols",
        ),
    ],
)
def test_service_addresses(crowded: Crowded, spec: dict[str, object]) -> None:
    kubectl = crowded.kubectl
    if spec.get("clusterIP") == SERVER_ADDRESS:
        await_server_address(kubectl)
    kubectl.write("a.yaml", crowded.service(spec))
    kubectl("create", "-f", "a.yaml")
    kubectl("get", "svc", "x", "-o", "yaml")


@pytest.mark.parametrize(
    "spec",
    [
        {"clusterIP": "10.96.0.209"},
        {"clusterIP": "10.200.0.1"},
        {"clusterIP": TAKEN},
        {"type": "NodePort"},
        {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30081}]},
    ],
)
def test_service_addresses_on_dry_run(crowded: Crowded, spec: dict[str, object]) -> None:
    kubectl = crowded.kubectl
    kubectl.write("a.yaml", crowded.service(spec))
    kubectl("create", "-f", "a.yaml", "--dry-run=server")
    kubectl("get", "svc", "x", code=1)


def test_an_address_can_be_had_again_after_its_service_is_gone(kubectl: Kubectl) -> None:
    kubectl.write("a.yaml", service("x", clusterIP="10.96.0.210", type="NodePort", ports=[{"port": 80, "nodePort": 30083}]))
    kubectl("create", "-f", "a.yaml", code=0)
    kubectl("delete", "-f", "a.yaml", code=0)
    # At once on ours; the real one's repair loop may hold the address for a minute.
    assert kubectl.on(OURS, "create", "-f", "a.yaml").code == 0
    for attempt in attempts("the real one's repair loop", quiet=150, pause=1):
        said = kubectl.on(REAL, "create", "-f", "a.yaml")
        if said.code == 0:
            break
        assert "already allocated" in said.err, said.err
        attempt.saw(said)
    kubectl("delete", "-f", "a.yaml", code=0)


def test_the_endpoints_of_a_service_go_with_it(kubectl: Kubectl) -> None:
    endpoints = {"apiVersion": "v1", "kind": "Endpoints", "subsets": [{"addresses": [{"ip": "10.9.9.9"}]}]}
    kubectl.apply(service("x"), {**endpoints, "metadata": {"name": "x"}}, {**endpoints, "metadata": {"name": "other"}})
    kubectl("delete", "svc", "x", "--dry-run=server", code=0)
    kubectl("get", "endpoints", "-o", "name", code=0)
    kubectl("delete", "svc", "x", code=0)
    kubectl("get", "endpoints", "-o", "name", code=0)


@pytest.mark.parametrize(
    "patch",
    [
        '{"spec":{"type":"NodePort"}}',
        '{"spec":{"type":"LoadBalancer"}}',
        '{"spec":{"type":"ExternalName","externalName":"a.example.com"}}',
        '{"spec":{"type":"ExternalName","externalName":"a.example.com","clusterIP":null,"clusterIPs":null}}',
        '{"spec":{"clusterIP":"10.96.0.220"}}',
        '{"spec":{"clusterIP":"None"}}',
        '{"spec":{"clusterIP":null}}',
        '{"spec":{"clusterIPs":null}}',
        '{"spec":{"clusterIP":null,"clusterIPs":null}}',
        '{"spec":{"ipFamilyPolicy":"RequireDualStack"}}',
        '{"spec":{"ports":[{"port":81}]}}',
    ],
)
@pytest.mark.parametrize("kind", ["ClusterIP", "NodePort"])
def test_service_changes(kubectl: Kubectl, kind: str, patch: str) -> None:
    kubectl.apply(service("x", type=kind))
    kubectl("patch", "svc", "x", "--type=merge", "-p", patch)
    kubectl("get", "svc", "x", "-o", "yaml", "--show-managed-fields", code=0)
    kubectl("patch", "svc", "x", "--type=merge", "-p", '{"spec":{"type":"ClusterIP","externalName":null}}')
    kubectl("get", "svc", "x", "-o", "yaml", code=0)
