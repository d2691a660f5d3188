"""The manifest that imports a cluster: Rancher's objects in Rancher's order, with what settings and the cluster say in them."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from remuda import __version__
from remuda.access.settings.settings import AGENT_REPOSITORY, Effective, Settings
from remuda.gateway.registration import import_manifest
from remuda.gateway.registration.agent_manifest import TOLD, ManifestInputs, objects, render, resolve_image
from remuda.gateway.server.dependencies import Services
from remuda.images.recipe import REPOSITORY
from remuda.kube.encoding import yamlio

Obj = dict[str, Any]
SERVER, TOKEN = "https://remuda.example.com", "b" * 54


def wanted(spec: Obj | None = None, environment: dict[str, str] | None = None, **more: Any) -> ManifestInputs:
    cluster = {"metadata": {"name": "c-m-abcdefgh"}, "spec": spec or {}}
    return ManifestInputs(cluster, Settings((), environment or {}), SERVER, TOKEN, **more)


def one(made: ManifestInputs, kind: str) -> Obj:
    (found,) = (each for each in objects(made) if each["kind"] == kind)
    return found


def pod(made: ManifestInputs) -> Obj:
    found: Obj = one(made, "Deployment")["spec"]["template"]["spec"]
    return found


def environment(made: ManifestInputs) -> dict[str, str]:
    return {each["name"]: each["value"] for each in pod(made)["containers"][0]["env"]}


def test_objects_come_in_the_order_they_are_applied_in() -> None:
    assert [(each["kind"], each["metadata"]["name"]) for each in objects(wanted())] == [
        ("ClusterRole", "proxy-clusterrole-kubeapiserver"),
        ("ClusterRoleBinding", "proxy-role-binding-kubernetes-master"),
        ("Namespace", "cattle-system"),
        ("ServiceAccount", "cattle"),
        ("ClusterRoleBinding", "cattle-admin-binding"),
        ("Secret", f"cattle-credentials-{hashlib.sha256(f'{SERVER}.{TOKEN}.'.encode()).hexdigest()[:10]}"),
        ("ClusterRole", "cattle-admin"),
        ("Deployment", "cattle-cluster-agent"),
        ("Service", "cattle-cluster-agent"),
    ]


def test_text_holds_the_same_objects() -> None:
    made = wanted({"agentEnvVars": [{"name": "HTTP_PROXY", "value": "yes: #"}, {"name": "N", "value": "0123"}]})
    assert list(yamlio.loads_all(render(made))) == objects(made)


def test_the_token_is_in_the_secret_and_nowhere_else() -> None:
    made = wanted()
    secret = one(made, "Secret")
    assert {name: base64.b64decode(value).decode() for name, value in secret["data"].items()} == {
        "url": SERVER,
        "token": TOKEN,
        "namespace": "",
    }
    assert TOKEN not in str([each for each in objects(made) if each["kind"] != "Secret"])
    mounted = pod(made)["volumes"][0]
    assert mounted["secret"] == {"secretName": secret["metadata"]["name"], "defaultMode": 0o500}
    assert environment(made)["CATTLE_CREDENTIAL_NAME"] == secret["metadata"]["name"]


def test_everything_says_which_cluster_it_was_made_for() -> None:
    assert {each["metadata"]["annotations"]["remuda.dev/made-for"] for each in objects(wanted())} == {"c-m-abcdefgh"}


@pytest.mark.parametrize(
    ("image", "registry", "resolved"),
    [
        ("rancher/rancher-agent:head", "", "rancher/rancher-agent:head"),
        ("rancher/rancher-agent:head", "reg.example.com", "reg.example.com/rancher/rancher-agent:head"),
        ("agent:1", "reg.example.com", "reg.example.com/rancher/agent:1"),
        ("reg.example.com/x/agent:1", "reg.example.com", "reg.example.com/x/agent:1"),
        ("", "reg.example.com", ""),
    ],
)
def test_images_come_from_the_private_registry(image: str, registry: str, resolved: str) -> None:
    assert resolve_image(image, registry) == resolved


def test_the_image_is_the_settings_unless_the_cluster_has_its_own() -> None:
    said = {"REMUDA_AGENT_IMAGE": "mine/agent:1", "REMUDA_SYSTEM_DEFAULT_REGISTRY": "reg.example.com"}

    def image(spec: Obj) -> str:
        return str(pod(wanted(spec, said))["containers"][0]["image"])

    assert image({}) == "reg.example.com/mine/agent:1"
    assert image({"desiredAgentImage": "fixed"}) == "reg.example.com/mine/agent:1"
    assert image({"desiredAgentImage": "other/agent:2"}) == "reg.example.com/other/agent:2"
    assert image({"clusterSecrets": {"privateRegistryURL": "its.example.com"}}) == "its.example.com/mine/agent:1"
    assert image({"agentImageOverride": "exactly/this:3"}) == "exactly/this:3"


@pytest.mark.parametrize(
    ("server", "registry"),
    [
        ("https://remuda.example.com", "remuda.example.com"),
        ("https://remuda.example.com:8443", "remuda.example.com:8443"),
        ("https://192.0.2.7:8443", "192.0.2.7:8443"),
        # Without its port it would be a directory of a public registry.
        ("https://remuda", "remuda:443"),
    ],
)
def test_our_own_image_is_had_from_the_server_that_the_cluster_is_told_of(server: str, registry: str) -> None:
    def image(environ: dict[str, str], **spec: Any) -> str:
        made = replace(wanted(spec, environ), server=server)
        return str(pod(made)["containers"][0]["image"])

    own = f"remuda/cluster-agent:{__version__}"
    assert image({}) == f"{registry}/{own}"
    # As provisioning says it of clusters that are made by us.
    assert image({}, desiredAgentImage=own) == f"{registry}/{own}"
    # Whoever has a registry for all images has mirrored it there.
    assert image({"REMUDA_SYSTEM_DEFAULT_REGISTRY": "reg.example.com"}) == f"reg.example.com/{own}"
    assert image({}, clusterSecrets={"privateRegistryURL": "its.example.com"}) == f"its.example.com/{own}"
    # And whoever says which one means that one.
    assert image({"REMUDA_AGENT_IMAGE": "mine/agent:1"}) == "mine/agent:1"


def test_the_image_that_is_served_is_the_one_that_is_named() -> None:
    assert REPOSITORY == AGENT_REPOSITORY


def test_charts_are_copied_only_if_their_place_is_named() -> None:
    assert "initContainers" not in pod(wanted())
    with_charts = pod(wanted({"desiredAssetsImage": "rancher/rancher-assets:head"}))
    assert with_charts["initContainers"][0]["name"] == "rancher-charts-copy"
    assert with_charts["containers"][0]["volumeMounts"][1]["mountPath"] == "/var/lib/rancher-data/local-catalogs/v2"


def test_the_agents_environment() -> None:
    found = environment(wanted(ca_checksum="abc", version="v1.2.3"))
    assert found == {
        "CATTLE_SERVER": SERVER,
        "CATTLE_CA_CHECKSUM": "abc",
        "CATTLE_CLUSTER": "true",
        "CATTLE_K8S_MANAGED": "true",
        "CATTLE_SYSTEM_DEFAULT_REGISTRY": "",
        "CATTLE_CREDENTIAL_NAME": found["CATTLE_CREDENTIAL_NAME"],
        "CATTLE_SUC_APP_NAME_OVERRIDE": "",
        "CATTLE_SERVER_VERSION": "v1.2.3",
        "CATTLE_INSTALL_UUID": "",
        "CATTLE_INGRESS_IP_DOMAIN": "sslip.io",
        "STRICT_VERIFY": "true",
    }


def test_features_are_told_sorted_where_they_are_known() -> None:
    made = wanted(features={"rke2": False, "multi-cluster-management-agent": True}, namespace="c-m-abcdefgh")
    assert environment(made)["CATTLE_FEATURES"] == "multi-cluster-management-agent=true,rke2=false"


@pytest.mark.parametrize(("mode", "strict"), [("strict", "true"), ("system-store", "false")])
def test_how_strictly_the_agent_verifies_is_a_setting(mode: str, strict: str) -> None:
    assert environment(wanted(None, {"REMUDA_AGENT_TLS_MODE": mode}))["STRICT_VERIFY"] == strict


def test_a_cluster_may_say_variables_of_its_own() -> None:
    own = [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}, {"name": "STRICT_VERIFY", "value": "false"}]
    listed = pod(wanted({"agentEnvVars": own}))["containers"][0]["env"]
    assert listed[-2:] == own
    assert [each["name"] for each in listed].count("STRICT_VERIFY") == 1


def test_where_the_agent_runs() -> None:
    found = pod(wanted())
    assert [each["key"] for each in found["tolerations"]] == [
        "node-role.kubernetes.io/controlplane",
        "node-role.kubernetes.io/control-plane",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert "nodeAffinity" in found["affinity"]
    tainted = pod(wanted(taints=({"key": "a", "value": "b", "effect": "NoExecute"}, {"key": "c", "effect": "NoSchedule"})))
    assert tainted["tolerations"][:-2] == [
        {"key": "a", "value": "b", "effect": "NoExecute"},
        {"key": "c", "effect": "NoSchedule", "operator": "Exists"},
    ]


def test_the_agent_of_a_node_that_is_away_is_not_waited_for_as_long_as_other_pods_are() -> None:
    away = {f"node.kubernetes.io/{key}" for key in ("not-ready", "unreachable")}
    found = [each for each in pod(wanted())["tolerations"] if each["key"] in away]
    assert len(found) == 2
    assert all((each["effect"], each["operator"], each["tolerationSeconds"]) == ("NoExecute", "Exists", 20) for each in found)
    own = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 900}
    chosen = pod(wanted({"clusterAgentDeploymentCustomization": {"appendTolerations": [own]}}))["tolerations"]
    assert [each for each in chosen if each["key"] == own["key"]] == [own], "who says otherwise has it otherwise"


def test_two_agents_are_on_two_nodes_where_there_are_two() -> None:
    found = pod(wanted())
    (apart,) = found["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    (spread,) = found["topologySpreadConstraints"]
    for term in (apart["podAffinityTerm"], spread):
        assert (term["topologyKey"], term["labelSelector"]) == (
            "kubernetes.io/hostname",
            {"matchLabels": {"app": "cattle-cluster-agent"}},
        )
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway", "one node has to be enough"
    own = {"podAntiAffinity": {}}
    assert pod(wanted({"clusterAgentDeploymentCustomization": {"overrideAffinity": own}}))["affinity"] == own


def test_a_cluster_may_change_the_deployment() -> None:
    custom = {
        "appendTolerations": [{"key": "mine", "operator": "Exists"}],
        "overrideAffinity": {"podAntiAffinity": {}},
        "overrideResourceRequirements": {"limits": {"memory": "256Mi"}},
        "schedulingCustomization": {
            "priorityClass": {"value": 1000, "preemptionPolicy": "Never"},
            "podDisruptionBudget": {"minAvailable": "1", "maxUnavailable": "0"},
        },
    }
    made = wanted({"clusterAgentDeploymentCustomization": custom})
    found = pod(made)
    assert found["tolerations"][-1] == {"key": "mine", "operator": "Exists"}
    assert found["affinity"] == {"podAntiAffinity": {}}
    assert found["containers"][0]["resources"] == {"limits": {"memory": "256Mi"}}
    assert found["priorityClassName"] == one(made, "PriorityClass")["metadata"]["name"]
    assert (one(made, "PriorityClass")["value"], one(made, "PriorityClass")["preemptionPolicy"]) == (1000, "Never")
    assert one(made, "PodDisruptionBudget")["spec"]["minAvailable"] == 1
    assert "maxUnavailable" not in one(made, "PodDisruptionBudget")["spec"]


def test_images_are_pulled_with_the_given_secrets() -> None:
    made = wanted(pull_secrets=(("reg", "e30="),))
    (secret,) = (each for each in objects(made) if each.get("type") == "kubernetes.io/dockerconfigjson")
    assert secret["metadata"]["labels"] == {"management.cattle.io/cattle-cluster-agent-pull-secret": "true"}
    assert pod(made)["imagePullSecrets"] == [{"name": "reg"}]


async def test_what_a_manifest_follows_from_is_known() -> None:
    asked: set[str] = set()

    class Listening(Settings):
        def effective(self, name: str) -> Effective:
            asked.add(name)
            return super().effective(name)

    services = cast(Services, SimpleNamespace(settings=Listening, authority=SimpleNamespace(ca=""), client=None))
    cluster = {"metadata": {"name": "c-m-abcdefgh"}, "spec": {}}
    render(await import_manifest.wanted(services, cluster, TOKEN, SERVER))
    assert asked == TOLD
