"""The files of a plan: their order, what is in them, and which may change without a restart."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import json
import tarfile
from typing import Any

import pytest

from remuda.kube.encoding import yamlio
from remuda.kube.objects import Key
from remuda.provisioning.host_layout import Layout
from remuda.provisioning.planner.render import (
    BuiltInRegistry,
    Driver,
    NamedObject,
    PlanInputs,
    Taint,
    needs,
    node_addresses,
    renderer,
)
from remuda.provisioning.planner.snapshot import CannotRender

from . import inputs
from .inputs import INIT, JOINED, desired_plan, facts, machine, plan, text_at

DISTRO = "/var/lib/rancher/rke2"
MANIFESTS = f"{DISTRO}/server/manifests/rancher"
CONFIG = "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml"
SCRIPT = "/var/lib/rancher/capr/idempotence/idempotent.sh"
REGISTRIES = "/etc/rancher/rke2/registries.yaml"


def agent(taints: tuple[Taint, ...]) -> str:
    return f"tolerates: {[str(taint) for taint in taints]}\n"


def in_namespace(**sources: NamedObject) -> dict[Key, NamedObject]:
    return {Key("fleet-default", name): source for name, source in sources.items()}


def test_files_come_in_the_originals_order_with_the_originals_marks() -> None:
    spec = {
        "registries": {"configs": {"r.example.org": {"caBundle": base64.b64encode(b"CA").decode()}}},
        "etcd": {"s3": {"bucket": "b", "endpointCA": "PEM"}},
        "machineGlobalConfig": {"audit-policy-file": "policy"},
        "machineSelectorFiles": [{"fileSources": [{"secret": {"name": "own", "items": [{"key": "k", "path": "/opt/own"}]}}]}],
        "localClusterAuthEndpoint": {"enabled": True},
    }
    own = NamedObject(annotations={"rke.cattle.io/object-authorized-for-clusters": "other,demo"}, data={"k": b"v"})
    found = plan(machine(), INIT, spec, facts(agent_manifest=agent, secrets=in_namespace(own=own)))
    assert [(file.path, file.dynamic, file.minor) for file in found.files] == [
        ("/etc/rancher/agent/registries.yaml", True, False),
        (f"{DISTRO}/etc/tls/registries/r.example.org/ca.crt", False, False),
        (f"{DISTRO}/etc/config-files/s3-endpoint-ca-{hashlib.md5(b'PEM').hexdigest()[:5]}.crt", False, False),
        (f"{DISTRO}/etc/config-files/audit-policy-file", False, False),
        (REGISTRIES, False, False),
        ("/opt/own", False, False),
        (CONFIG, False, False),
        (f"{MANIFESTS}/cluster-agent.yaml", True, True),
        (f"{MANIFESTS}/rke2-etcd-snapshot-extra-metadata.yaml", True, True),
        (f"{MANIFESTS}/addons.yaml", True, False),
        (f"{MANIFESTS}/managed-chart-config.yaml", True, False),
        (f"{DISTRO}/kube-api-authn-webhook.yaml", False, False),
        (SCRIPT, True, True),
    ]


@pytest.mark.parametrize(
    ("roles", "paths"),
    [
        ("worker", [REGISTRIES, CONFIG, SCRIPT]),
        ("etcd", [REGISTRIES, CONFIG, f"{MANIFESTS}/managed-chart-config.yaml", SCRIPT]),
        (
            "control-plane",
            [
                REGISTRIES,
                CONFIG,
                f"{MANIFESTS}/cluster-agent.yaml",
                f"{MANIFESTS}/rke2-etcd-snapshot-extra-metadata.yaml",
                f"{MANIFESTS}/addons.yaml",
                f"{MANIFESTS}/managed-chart-config.yaml",
                SCRIPT,
            ],
        ),
    ],
)
def test_a_role_gets_only_its_files(roles: str, paths: list[str]) -> None:
    assert [file.path for file in plan(machine(roles), JOINED, None, facts(agent_manifest=agent)).files] == paths


def test_a_cluster_that_configures_itself_gets_no_files_and_no_tokens() -> None:
    found = plan(machine(), INIT, {"unmanagedConfig": True})
    assert found.files == ()
    assert [instruction.name for instruction in found.instructions] == ["install"]


def test_a_host_in_a_directory_has_every_file_below_it() -> None:
    spec = {
        "machineSelectorFiles": [
            {"fileSources": [{"configMap": {"name": "own", "items": [{"key": "k", "path": "/opt/../../own"}]}}]}
        ]
    }
    own = NamedObject(annotations={"rke.cattle.io/object-authorized-for-clusters": "demo"}, data={"k": b"v"})
    known = facts(inputs.REMUDA, agent_manifest=agent, config_maps=in_namespace(own=own))
    found = plan(machine(on=Layout("/srv/a", "127.4.5.6")), INIT, {**spec, "registries": {"mirrors": {"x": {}}}}, known)
    assert all(file.path.startswith("/srv/a/") for file in found.files)
    assert "/srv/a/own" in [file.path for file in found.files]


class TestManifests:
    def test_the_agents_manifest_follows_the_taints_of_servers(self) -> None:
        found = plan(machine("control-plane"), JOINED, None, facts(agent_manifest=agent))
        assert (
            text_at(found, f"{MANIFESTS}/cluster-agent.yaml")
            == "tolerates: ['node-role.kubernetes.io/control-plane:NoSchedule']\n"
        )

    def test_every_server_has_the_same_manifests_for_the_taints_of_all(self) -> None:
        """Each K3s server applies its own copy: two that differ would roll the agent back and forth."""
        unreadable = machine("etcd", annotations={"rke.cattle.io/taints": "{"})
        servers = {
            "both": machine("etcd,control-plane"),
            "own": machine("control-plane,worker", annotations={"rke.cattle.io/taints": '[{"key":"db","effect":"NoExecute"}]'}),
            "unreadable": unreadable,
            "moved": machine("control-plane", on=Layout("/srv/a", "127.4.5.6")),
            "worker": machine("worker", annotations={"rke.cattle.io/taints": '[{"key":"gpu"}]'}),
        }
        named = tuple(dataclasses.replace(each, name=name) for name, each in servers.items())
        spec = {
            "kubernetesVersion": inputs.K3S,
            "machineSelectorConfig": [
                {"machineLabelSelector": {"matchLabels": {"cloud": "v"}}, "config": {"cloud-provider-name": "rancher-vsphere"}}
            ],
        }
        whole = dataclasses.replace(inputs.snapshot(spec), machines=named)
        render = renderer(facts(inputs.K3S, agent_manifest=agent))
        found: dict[str, set[bytes]] = {}
        for each in named:
            if each.is_control_plane:
                for file in render(whole, each, JOINED).files:
                    if "/server/manifests/" in file.path:
                        found.setdefault(file.path.rpartition("/")[2], set()).add(file.data)
        assert len(found) == 4 and all(len(contents) == 1 for contents in found.values()), found
        (manifest,) = found["cluster-agent.yaml"]
        taints = ["db:NoExecute", "node-role.kubernetes.io/control-plane:NoSchedule", "node-role.kubernetes.io/etcd:NoExecute"]
        assert manifest.decode() == f"tolerates: {taints}\n"
        # A server that leaves or comes changes it; a worker does not.
        without = dataclasses.replace(whole, machines=tuple(each for each in named if each.name != "worker"))
        (again,) = (file for file in render(without, named[0], JOINED).files if file.path.endswith("cluster-agent.yaml"))
        assert again.data == manifest

    def test_the_local_cluster_has_no_agent(self) -> None:
        assert f"{MANIFESTS}/cluster-agent.yaml" not in [file.path for file in plan().files]

    def test_snapshots_carry_the_clusters_spec(self) -> None:
        found = plan(annotations={"rke.cattle.io/cluster-spec": "H4sI"})
        assert yamlio.loads(text_at(found, f"{MANIFESTS}/rke2-etcd-snapshot-extra-metadata.yaml")) == {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "rke2-etcd-snapshot-extra-metadata", "namespace": "kube-system"},
            "data": {"provisioning-cluster-spec": "H4sI"},
        }

    def test_additional_manifests_are_passed_on(self) -> None:
        assert text_at(plan(spec={"additionalManifest": "kind: X\n"}), f"{MANIFESTS}/addons.yaml") == "kind: X\n"
        assert text_at(plan(), f"{MANIFESTS}/addons.yaml") == ""

    def test_before_bootstrap_every_machine_gets_only_the_agent(self) -> None:
        before = dataclasses.replace(inputs.snapshot(), pre_bootstrap=True)
        found = desired_plan(facts(agent_manifest=agent), before, machine("worker"), JOINED)
        assert [file.path for file in found.files] == [REGISTRIES, CONFIG, f"{MANIFESTS}/cluster-agent.yaml", SCRIPT]


class TestCharts:
    PATH = f"{MANIFESTS}/managed-chart-config.yaml"

    def charts(self, spec: dict[str, Any]) -> list[tuple[str, Any]]:
        documents = list(yamlio.loads_all(text_at(plan(spec=spec), self.PATH)))
        assert {(one["apiVersion"], one["kind"], one["metadata"]["namespace"]) for one in documents} <= {
            ("helm.cattle.io/v1", "HelmChartConfig", "kube-system")
        }
        return [(one["metadata"]["name"], json.loads(one["spec"]["valuesContent"])) for one in documents]

    def test_without_charts_the_file_is_empty(self) -> None:
        assert text_at(plan(), self.PATH) == ""

    def test_values_are_written_by_chart_with_the_cluster_in_them(self) -> None:
        found = self.charts({"chartValues": {"b": None, "a": {"x": 1, "global": {"cattle": {"y": 2}, "z": 3}}}})
        cluster = {"clusterId": "c-m-abcdefgh"}
        assert found == [
            ("a", {"x": 1, "global": {"cattle": {"y": 2, **cluster}, "z": 3}}),
            ("b", {"global": {"cattle": cluster}}),
        ]

    def test_vsphere_has_a_chart_of_its_own(self) -> None:
        found = self.charts({"machineGlobalConfig": {"cloud-provider-name": "rancher-vsphere"}})
        assert [name for name, _ in found] == ["rancher-vsphere-csi"]


class TestRegistries:
    def registries(self, said: dict[str, Any] | None, known: PlanInputs | None = None) -> Any:
        content = text_at(plan(machine("worker"), JOINED, {"registries": said} if said else None, known), REGISTRIES)
        return json.loads(content) if content else None

    def test_without_registries_the_file_is_there_and_empty(self) -> None:
        assert self.registries(None) is None

    def test_mirrors_are_written_without_what_is_empty(self) -> None:
        said = {"mirrors": {"docker.io": {"endpoint": ["https://m"], "rewrite": {"a": "b"}}, "quay.io": {"endpoint": None}}}
        mirrors = {"docker.io": {"endpoint": ["https://m"], "rewrite": {"a": "b"}}, "quay.io": {}}
        assert self.registries(said) == {"configs": {}, "mirrors": mirrors}

    def test_the_agent_gets_the_same(self) -> None:
        found = plan(machine("worker"), JOINED, {"registries": {"mirrors": {"docker.io": {"endpoint": ["https://m"]}}}})
        assert text_at(found, "/etc/rancher/agent/registries.yaml") == text_at(found, REGISTRIES)

    @pytest.mark.parametrize(
        ("source", "auth"),
        [
            (
                NamedObject(
                    "rke.cattle.io/auth-config", data={"username": b"u", "password": b"p", "auth": b"x", "identityToken": b"t"}
                ),
                {"username": "u", "password": "p", "auth": "eA==", "identity_token": "t"},
            ),
            (
                NamedObject("kubernetes.io/basic-auth", data={"username": b"u", "password": b"p"}),
                {"username": "u", "password": "p", "auth": "", "identity_token": ""},
            ),
            (
                NamedObject(
                    "kubernetes.io/dockerconfigjson",
                    data={".dockerconfigjson": b'{"auths":{"r":{"username":"u","auth":"dTpw"}}}'},
                ),
                {"username": "u", "password": "", "auth": "dTpw", "identity_token": ""},
            ),
        ],
    )
    def test_credentials_come_from_three_kinds_of_secrets(self, source: NamedObject, auth: dict[str, str]) -> None:
        found = self.registries({"configs": {"r": {"authConfigSecretName": "s"}}}, facts(secrets=in_namespace(s=source)))
        assert found["configs"] == {"r": {"auth": auth, "tls": None}}

    @pytest.mark.parametrize(
        ("said", "source", "why"),
        [
            ({"authConfigSecretName": "s"}, None, "Secret fleet-default/s is not there"),
            ({"authConfigSecretName": "s"}, NamedObject("Opaque"), "holds no credentials for registry r"),
            ({"authConfigSecretName": "s"}, NamedObject("kubernetes.io/dockerconfigjson"), "holds no credentials for registry r"),
            ({"tlsSecretName": "s"}, NamedObject("Opaque"), r"not kubernetes\.io/tls"),
            ({"caBundle": "!"}, None, "no base64"),
        ],
    )
    def test_what_can_not_be_used_is_told(self, said: dict[str, str], source: NamedObject | None, why: str) -> None:
        with pytest.raises(CannotRender, match=why):
            self.registries({"configs": {"r": said}}, facts(secrets=in_namespace(s=source) if source else {}))

    def test_certificates_become_files(self) -> None:
        pair = NamedObject("kubernetes.io/tls", data={"tls.crt": b"C", "tls.key": b"K"})
        said = {"configs": {"r:5000": {"tlsSecretName": "s", "caBundle": "Q0E=", "insecureSkipVerify": True}}}
        found = plan(machine("worker"), JOINED, {"registries": said}, facts(secrets=in_namespace(s=pair)))
        at = f"{DISTRO}/etc/tls/registries/r:5000"
        assert json.loads(text_at(found, REGISTRIES))["configs"]["r:5000"]["tls"] == {
            "ca_file": f"{at}/ca.crt",
            "cert_file": f"{at}/tls.crt",
            "key_file": f"{at}/tls.key",
            "insecure_skip_verify": True,
        }
        assert [(file.path, file.data) for file in found.files[1:4]] == [
            (f"{at}/ca.crt", b"CA"),
            (f"{at}/tls.crt", b"C"),
            (f"{at}/tls.key", b"K"),
        ]

    def test_the_global_registry_brings_its_credentials(self) -> None:
        pulls = (
            NamedObject("kubernetes.io/dockerconfigjson", data={".dockerconfigjson": b'{"auths":{"other":{"auth":"x"}}}'}),
            NamedObject(
                "kubernetes.io/dockerconfigjson", data={".dockerconfigjson": b'{"auths":{"r.example.org":{"auth":"y"}}}'}
            ),
        )
        known = facts(default_registry="r.example.org", pull_secrets=pulls)
        assert self.registries(None, known)["configs"]["r.example.org"]["auth"]["auth"] == "y"
        own = {"configs": {"r.example.org": {"insecureSkipVerify": True}}}
        assert self.registries(own, known)["configs"]["r.example.org"]["auth"] is None

    def test_a_cluster_with_a_registry_of_its_own_does_not_get_the_global_credentials(self) -> None:
        pulls = (NamedObject("kubernetes.io/basic-auth", data={"username": b"u"}),)
        spec = {"machineGlobalConfig": {"system-default-registry": "mine.example.org"}}
        found = plan(machine(), INIT, spec, facts(default_registry="r.example.org", pull_secrets=pulls))
        assert text_at(found, REGISTRIES) == ""
        assert inputs.config_of(found)["system-default-registry"] == "mine.example.org"

    def test_images_that_we_serve_are_behind_our_ca(self) -> None:
        found = self.registries(None, facts(built_in_registry=BuiltInRegistry("gate:8443", "PEM")))
        path = f"{DISTRO}/etc/tls/registries/gate:8443/ca.crt"
        assert found["configs"]["gate:8443"]["tls"]["ca_file"] == path

    @pytest.mark.parametrize("host", ["127.0.0.1:8443", "127.64.0.1:8443", "localhost:8443"])
    def test_ours_on_the_same_machine_is_asked_with_tls_all_the_same(self, host: str) -> None:
        found = self.registries(None, facts(built_in_registry=BuiltInRegistry(host, "PEM")))
        assert found["mirrors"] == {host: {"endpoint": [f"https://{host}"]}}


class TestSources:
    def files(self, item: dict[str, Any], *, authorized: str = "demo", **said: Any) -> list[tuple[str, bytes, str, bool]]:
        source = NamedObject(annotations={"rke.cattle.io/object-authorized-for-clusters": authorized}, data={"k": b"v"})
        spec = {"machineSelectorFiles": [{"fileSources": [{"secret": {"name": "own", "items": [item], **said}}]}]}
        found = plan(machine("worker"), JOINED, spec, facts(secrets=in_namespace(own=source)))
        return [(file.path, file.data, file.permissions, file.dynamic) for file in found.files if file.path.startswith("/opt")]

    def test_a_key_becomes_a_file(self) -> None:
        digest = base64.b64encode(hashlib.sha256(b"v").digest()).decode()
        item = {"key": "k", "path": "/opt/a", "dynamic": True, "permissions": "0644", "hash": digest}
        assert self.files(item) == [("/opt/a", b"v", "0644", True)]
        assert self.files({"key": "k", "path": "/opt/a"}, defaultPermissions="0600") == [("/opt/a", b"v", "0600", False)]

    @pytest.mark.parametrize(
        ("item", "authorized", "why"),
        [
            ({"key": "k", "path": "/opt/a"}, "demo2,other", "Secret fleet-default/.* is not authorized for the cluster demo: "),
            ({"key": "k", "path": "/opt/a"}, "", "not authorized for the cluster demo"),
            ({"key": "z", "path": "/opt/a"}, "demo", "no key z"),
            ({"key": "k", "path": "/opt/a", "hash": "AAAA"}, "demo", "does not have the hash"),
        ],
    )
    def test_what_may_not_or_can_not_be_given_is_refused(self, item: dict[str, Any], authorized: str, why: str) -> None:
        with pytest.raises(CannotRender, match=why):
            self.files(item, authorized=authorized)

    def test_only_selected_machines_get_them(self) -> None:
        spec = {
            "machineSelectorFiles": [
                {"machineLabelSelector": {"matchLabels": {"a": "b"}}, "fileSources": [{"secret": {"name": "gone"}}]}
            ]
        }
        assert plan(machine("worker"), JOINED, spec).files
        with pytest.raises(CannotRender, match="Secret fleet-default/gone is not there"):
            plan(machine("worker", labels={"a": "b"}), JOINED, spec)

    def test_a_cloud_providers_configuration_may_be_in_a_secret(self) -> None:
        path = f"{DISTRO}/etc/config-files/cloud-provider-config"
        spec = {"machineGlobalConfig": {"cloud-provider-config": "secret://other:cloud"}}
        source = NamedObject(annotations={"v2prov-secret-authorized-for-cluster": "demo"}, data={"credential": b"[Global]"})
        found = plan(machine("worker"), JOINED, spec, facts(secrets={Key("other", "cloud"): source}))
        assert text_at(found, path) == "[Global]"
        assert inputs.config_of(found)["cloud-provider-config"] == path
        with pytest.raises(CannotRender, match="not authorized"):
            plan(machine("worker"), JOINED, spec, facts(secrets={Key("other", "cloud"): NamedObject(data={"credential": b""})}))


class TestSnapshots:
    CREDENTIAL = NamedObject(
        data={
            "s3credentialConfig-accessKey": b"A",
            "s3credentialConfig-secretKey": b"S",
            "s3credentialConfig-defaultRegion": b"r",
            "s3credentialConfig-defaultBucket": b"elsewhere",
            "s3credentialConfig-defaultSkipSSLVerify": b"true",
        }
    )

    def test_s3_takes_what_is_missing_from_its_credential(self) -> None:
        s3 = {
            "bucket": "b",
            "cloudCredentialName": "cattle-global-data:cc-1",
            "retention": 3,
            "folder": "f",
            "endpointCA": "/etc/ca.crt",
        }
        known = facts(secrets={Key("cattle-global-data", "cc-1"): self.CREDENTIAL})
        found = inputs.config(machine("etcd"), INIT, {"etcd": {"disableSnapshots": False, "s3": s3}}, known)
        assert {name: value for name, value in found.items() if name.startswith("etcd-")} == {
            "etcd-s3": True,
            "etcd-s3-access-key": "A",
            "etcd-s3-bucket": "b",
            "etcd-s3-endpoint-ca": "/etc/ca.crt",
            "etcd-s3-folder": "f",
            "etcd-s3-region": "r",
            "etcd-s3-retention": 3,
            "etcd-s3-secret-key": "S",
            "etcd-s3-skip-ssl-verify": True,
        }

    def test_only_members_of_etcd_are_told(self) -> None:
        spec = {"etcd": {"disableSnapshots": True, "s3": {"cloudCredentialName": "cattle-global-data:gone"}}}
        found = inputs.config(machine("control-plane"), JOINED, spec)
        assert not [name for name in found if name.startswith("etcd-")]
        with pytest.raises(CannotRender, match="cattle-global-data/gone"):
            inputs.config(machine("etcd"), JOINED, spec)


def test_everything_that_a_spec_names_is_known_to_be_needed() -> None:
    spec = {
        "registries": {"configs": {"a": {"authConfigSecretName": "auth", "tlsSecretName": "tls"}, "b": None}},
        "etcd": {"s3": {"cloudCredentialName": "cattle-global-data:cc-1"}},
        "machineGlobalConfig": {"cloud-provider-config": "secret://other:cloud"},
        "machineSelectorConfig": [{"config": {"cloud-provider-config": "plain text"}}],
        "machineSelectorFiles": [
            {"fileSources": [{"secret": {"name": "s"}}, {"configMap": {"name": "c"}}]},
            {"fileSources": None},
        ],
    }
    found = needs(spec, "ns")
    assert {str(key) for key in found.secrets} == {"ns/auth", "ns/tls", "ns/s", "cattle-global-data/cc-1", "other/cloud"}
    assert {str(key) for key in found.config_maps} == {"ns/c"}
    assert needs({}, "ns").secrets == frozenset()


def test_objects_of_the_api_become_sources() -> None:
    metadata = {"name": "x", "annotations": {"a": "b"}}
    secret = {"kind": "Secret", "metadata": metadata, "type": "Opaque", "data": {"k": "dg==", "empty": None}}
    assert NamedObject.of_secret(secret) == NamedObject("Opaque", {"a": "b"}, {"k": b"v", "empty": b""})
    config_map = {"kind": "ConfigMap", "metadata": metadata, "data": {"k": "v"}, "binaryData": {"b": "AA=="}}
    assert NamedObject.of_config_map(config_map) == NamedObject("", {"a": "b"}, {"k": b"v", "b": b"\x00"})
    assert NamedObject.of_config_map({}) == NamedObject()


def archive(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        for name, data in files.items():
            member = tarfile.TarInfo(name.replace("__", "/"))
            member.size = len(data)
            made.addfile(member, io.BytesIO(data))
    return out.getvalue()


def test_a_drivers_addresses_are_in_its_saved_state() -> None:
    said = b'{"DriverName":"amazonec2","Driver":{"IPAddress":"203.0.113.5","PrivateIPAddress":"10.0.0.5","IPv6Address":null}}'
    saved = archive(**{"certs__ca.pem": b"x", "management-state__machines__m1__config.json": said})
    assert node_addresses.driver_of(saved) == Driver("amazonec2", "203.0.113.5", "10.0.0.5")


@pytest.mark.parametrize(
    "saved",
    [b"", b"no archive", archive(other=b"{}"), archive(**{"machines__m__config.json": b"{"}), archive()],
    # Archives hold the time at which they were made, and are no names.
    ids=["nothing", "no archive", "no config", "half a config", "empty archive"],
)
def test_a_state_that_tells_nothing_is_none(saved: bytes) -> None:
    assert node_addresses.driver_of(saved) is None
