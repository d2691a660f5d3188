"""A template for pod security becomes a file of the control plane's hosts, and an argument of the API server."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
import yaml

from remuda.access.rancher_conditions import condition_of
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import with_path
from remuda.provisioning.graph import Unrenderable, graph_of, podsecurity
from remuda.provisioning.graph.cluster_status import with_support
from remuda.provisioning.graph.podsecurity import BUILT_IN
from tests.unit.access.management_api import World
from tests.unit.provisioning.cluster.mirrored_clusters import FLEET, demo

from .graph_controllers import VERSION, cluster_world
from .test_provisioningcluster import custom, part, told
from .wanted_clusters import wish

Obj = dict[str, Any]
MANAGED = "c-m-abcdefgh"
NAME, PATH = "demo-admission-configuration-psact", "/etc/rancher/rke2/config/rancher-psact.yaml"
ARGUMENT = f"admission-control-config-file={PATH}"
GOLDEN = """\
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    defaults:
      audit: baseline
      enforce: restricted
      enforce-version: v1.30
    exemptions:
      namespaces:
      - kube-system
    kind: PodSecurityConfiguration
  name: PodSecurity
  path: ""
"""
TEMPLATE: Obj = {
    "apiVersion": management.API_VERSION,
    "kind": podsecurity.KIND,
    "metadata": {"name": "mine"},
    "configuration": {
        "defaults": {"enforce": "restricted", "enforce-version": "v1.30", "audit": "baseline"},
        "exemptions": {"usernames": [], "namespaces": ["kube-system"]},
    },
}


def named(version: str = VERSION, **config: Any) -> Obj:
    return with_path(with_path(wish(**config), ("spec", podsecurity.FIELD), "mine"), ("spec", "kubernetesVersion"), version)


def spec_of(wanted: Obj, template: Obj | None) -> Obj:
    graph = graph_of(wanted, MANAGED, {}, template)
    found: Obj = next(each.obj["spec"] for each in graph if each.obj["kind"] == "RKEControlPlane")
    return found


def test_the_file_is_as_rancher_writes_it() -> None:
    assert podsecurity.content(TEMPLATE, VERSION).decode() == GOLDEN
    assert b"pod-security.admission.config.k8s.io/v1beta1" in podsecurity.content(TEMPLATE, "v1.24.3+k3s1")


def test_what_every_server_has_can_be_used() -> None:
    for template in BUILT_IN.values():
        found = yaml.safe_load(podsecurity.content(template, VERSION))
        assert found["plugins"][0]["configuration"]["defaults"]["enforce-version"] == "latest"
    assert set(BUILT_IN) == {"rancher-privileged", "rancher-restricted"}


def test_a_secret_holds_it_and_only_hosts_of_the_control_plane_get_it() -> None:
    graph = graph_of(named(), MANAGED, {}, TEMPLATE)
    secret = next(each.obj for each in graph if each.resource == SECRETS)
    assert secret["metadata"]["name"] == NAME and secret["type"] == "Opaque"
    assert secret["metadata"]["annotations"]["rke.cattle.io/object-authorized-for-clusters"] == "demo"
    data = base64.b64decode(secret["data"]["admission-config-psact"])
    assert data.decode() == GOLDEN
    digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
    spec = spec_of(named(), TEMPLATE)
    assert spec["machineSelectorFiles"] == [
        {
            "machineLabelSelector": {"matchLabels": {"rke.cattle.io/control-plane-role": "true"}},
            "fileSources": [
                {"secret": {"name": NAME, "items": [{"key": "admission-config-psact", "path": PATH, "hash": digest}]}}
            ],
        }
    ]
    assert spec["machineGlobalConfig"]["kube-apiserver-arg"] == [ARGUMENT]


def test_what_users_say_besides_is_kept() -> None:
    theirs = {"fileSources": [{"secret": {"name": "theirs"}}]}
    said = {"cni": "canal", "kube-apiserver-arg": ["v=2", "--admission-control-config-file=/theirs", "a=b=c"]}
    spec = spec_of(named(machineGlobalConfig=said, machineSelectorFiles=[theirs]), TEMPLATE)
    assert spec["machineGlobalConfig"] == {"cni": "canal", "kube-apiserver-arg": ["v=2", "a=b=c", ARGUMENT]}
    assert spec["machineSelectorFiles"][0] == theirs and len(spec["machineSelectorFiles"]) == 2
    once = spec_of(named(machineGlobalConfig={"kube-apiserver-arg": "v=2"}), TEMPLATE)
    assert once["machineGlobalConfig"]["kube-apiserver-arg"] == ["v=2", ARGUMENT]


def test_what_ranchers_webhook_left_in_a_spec_is_replaced_and_taken_away() -> None:
    left = spec_of(named(), TEMPLATE)
    config = {key: left[key] for key in ("machineGlobalConfig", "machineSelectorFiles")}
    assert spec_of(named(**config), TEMPLATE) == left
    without = spec_of(wish(**config), None)
    assert without["machineSelectorFiles"] == [] and without["machineGlobalConfig"] == {}
    theirs = {"kube-apiserver-arg": ["admission-control-config-file=/theirs"]}
    assert spec_of(wish(machineGlobalConfig=theirs), None)["machineGlobalConfig"] == theirs


def test_a_cluster_without_one_is_generated_as_ever() -> None:
    assert [each.obj["kind"] for each in graph_of(wish(), MANAGED)] == ["RKECluster", "RKEControlPlane", "Cluster", "Beacon"]
    assert "machineSelectorFiles" not in spec_of(wish(), None)


@pytest.mark.parametrize("version", ["v1.34.1+remuda1", "v1.22.3+k3s1", "v1.34.1"])
def test_where_it_can_not_hold_that_is_said_and_nothing_is_rendered(version: str) -> None:
    wanted = named(version)
    assert podsecurity.template_of(wanted) == ""
    said = condition_of(with_support(wanted, None, 1.0), "OperationsSupported")
    assert said is not None and said["status"] == "False"
    assert podsecurity.FIELD in said["message"] and "as if no template were named" in said["message"]
    assert condition_of(with_support(named(), None, 1.0), "OperationsSupported") is None


@pytest.mark.parametrize(
    ("defaults", "why"),
    [
        ({"enforce": "none"}, "configuration.defaults.enforce can not be 'none'"),
        ({"warn-version": "1.30"}, "configuration.defaults.warn-version can not be '1.30'"),
    ],
)
def test_what_no_api_server_would_start_with_is_refused(defaults: Obj, why: str) -> None:
    bad = {**TEMPLATE, "configuration": {"defaults": defaults}}
    with pytest.raises(Unrenderable, match=why):
        graph_of(named(), MANAGED, {}, bad)


async def held(made: World) -> bytes | None:
    found = await made.find(SECRETS, NAME, FLEET)
    return None if found is None else base64.b64decode(found["data"]["admission-config-psact"])


async def name_template(made: World, name: str | None) -> None:
    await made.patch(provisioning.CLUSTERS, "demo", {"spec": {podsecurity.FIELD: name}}, FLEET)
    await made.settle(3)


async def test_it_follows_its_template_and_goes_when_it_is_no_longer_named() -> None:
    async with cluster_world() as made:
        await custom(made)
        await name_template(made, "mine")
        assert (await told(made, "RKECluster"))[0] == "Unknown"
        assert "there is no PodSecurityAdmissionConfigurationTemplate mine" in (await told(made, "RKECluster"))[2]
        await made.create(management.POD_SECURITY_TEMPLATES, TEMPLATE)
        await made.settle(3)
        assert (await told(made, "RKECluster"))[0] == "True" and await held(made) == GOLDEN.encode()
        plane = await part(made, rke.RKE_CONTROL_PLANES)
        assert plane["spec"]["machineGlobalConfig"]["kube-apiserver-arg"] == [ARGUMENT]
        changed = {"configuration": {"defaults": {"enforce": "baseline"}}}
        await made.patch(management.POD_SECURITY_TEMPLATES, "mine", changed)
        await made.settle(3)
        assert b"enforce: baseline" in (await held(made) or b"")
        await made.delete(SECRETS, NAME, FLEET)
        await made.settle(3)
        assert b"enforce: baseline" in (await held(made) or b""), "it is put back"
        await name_template(made, None)
        assert await held(made) is None
        plane = await part(made, rke.RKE_CONTROL_PLANES)
        assert not plane["spec"].get("machineSelectorFiles") and not plane["spec"].get("machineGlobalConfig")
        assert condition_of(await demo(made), "OperationsSupported") is None
