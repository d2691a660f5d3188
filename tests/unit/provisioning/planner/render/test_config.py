"""50-rancher.yaml: what each role is told, byte for byte where others read it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from remuda.provisioning.host_layout import Layout
from remuda.provisioning.planner.render import Driver, ignored_arguments
from remuda.provisioning.planner.snapshot import CannotRender, Join

from . import inputs
from .inputs import (
    AGENT_TOKEN,
    INIT,
    JOINED,
    NODE_LABELS,
    SERVER_TOKEN,
    config,
    config_of,
    desired_plan,
    driven,
    facts,
    machine,
    plan,
)

TLS = "/var/lib/rancher/rke2/server/tls"
# The worked example of a first server with all roles.
EXAMPLE = {
    "advertise-address": "10.0.0.5",
    "agent-token": AGENT_TOKEN,
    "cni": "calico",
    "etcd-snapshot-retention": 5,
    "etcd-snapshot-schedule-cron": "0 */5 * * *",
    "kube-controller-manager-arg": [f"cert-dir={TLS}/kube-controller-manager", "secure-port=10257"],
    "kube-controller-manager-extra-mount": [f"{TLS}/kube-controller-manager:{TLS}/kube-controller-manager"],
    "kube-scheduler-arg": [f"cert-dir={TLS}/kube-scheduler", "secure-port=10259"],
    "kube-scheduler-extra-mount": [f"{TLS}/kube-scheduler:{TLS}/kube-scheduler"],
    "node-external-ip": ["203.0.113.5"],
    "node-ip": ["10.0.0.5"],
    "node-label": NODE_LABELS,
    "private-registry": "/etc/rancher/rke2/registries.yaml",
    "tls-san": ["203.0.113.5"],
    "token": SERVER_TOKEN,
}
ETCD = {"etcd": {"snapshotRetention": 5, "snapshotScheduleCron": "0 */5 * * *"}}


def test_a_first_server_with_all_roles_is_told_what_the_example_says() -> None:
    assert config(driven(), INIT, ETCD) == EXAMPLE


def test_the_file_is_json_with_sorted_keys_and_two_spaces() -> None:
    found = inputs.text_at(inputs.plan(machine("worker"), JOINED), "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml")
    labels = ",\n".join(f'    "{label}"' for label in NODE_LABELS)
    assert found == (
        f'{{\n  "node-label": [\n{labels}\n  ],\n'
        '  "private-registry": "/etc/rancher/rke2/registries.yaml",\n'
        f'  "server": "https://10.0.0.5:9345",\n  "token": "{AGENT_TOKEN}"\n}}'
    )


def test_a_joining_server_differs_by_the_server_it_joins() -> None:
    assert config(driven(), JOINED, ETCD) == EXAMPLE | {"server": "https://10.0.0.5:9345"}


def test_a_first_k3s_server_is_told_that_it_is_one() -> None:
    found = config(driven(), INIT, ETCD, facts(inputs.K3S))
    assert found["cluster-init"] is True
    assert not {"cni", "server", "kube-scheduler-extra-mount"} & set(found)
    assert found["kube-scheduler-arg"] == ["cert-dir=/var/lib/rancher/k3s/server/tls/kube-scheduler", "secure-port=10259"]


def test_our_own_distribution_is_told_as_k3s_is() -> None:
    ours = config(driven(), INIT, ETCD, facts(inputs.REMUDA))
    theirs = config(driven(), INIT, ETCD, facts(inputs.K3S))
    assert str(ours) == str(theirs).replace("rancher/k3s", "rancher/remuda")


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        ("etcd", {"disable-apiserver": True, "disable-controller-manager": True, "disable-scheduler": True}),
        ("control-plane", {"disable-etcd": True}),
        ("etcd,control-plane", {}),
        ("worker", {}),
    ],
)
def test_a_role_runs_only_its_own_components(roles: str, said: dict[str, Any]) -> None:
    found = config(machine(roles), JOINED)
    assert {name: value for name, value in found.items() if name.startswith("disable-")} == said


@pytest.mark.parametrize(
    ("version", "roles", "taints"),
    [
        (inputs.RKE2, "etcd", ["node-role.kubernetes.io/etcd:NoExecute"]),
        (
            inputs.RKE2,
            "etcd,control-plane",
            ["node-role.kubernetes.io/control-plane:NoSchedule", "node-role.kubernetes.io/etcd:NoExecute"],
        ),
        (inputs.K3S, "etcd,control-plane", ["node-role.kubernetes.io/control-plane:NoSchedule"]),
        (inputs.K3S, "etcd", ["node-role.kubernetes.io/etcd:NoExecute"]),
        (inputs.RKE2, "control-plane", ["node-role.kubernetes.io/control-plane:NoSchedule"]),
        (inputs.RKE2, "etcd,control-plane,worker", None),
        (inputs.RKE2, "worker", None),
    ],
)
def test_a_role_that_is_not_for_everybodys_pods_is_tainted(version: str, roles: str, taints: list[str] | None) -> None:
    assert config(machine(roles), JOINED, None, facts(version)).get("node-taint") == taints


def test_labels_and_taints_of_a_registration_reach_the_node_sorted() -> None:
    said = {
        "rke.cattle.io/labels": '{"z":"1","a":"2"}',
        "rke.cattle.io/taints": '[{"key":"b","value":"c","effect":"NoSchedule"},{"key":"a"}]',
    }
    found = config(machine("worker", annotations=said), JOINED)
    assert found["node-label"] == sorted(["a=2", "z=1", *NODE_LABELS])
    assert found["node-taint"] == ["a", "b=c:NoSchedule"]


def test_labels_that_are_no_json_hold_up_only_this_machine() -> None:
    with pytest.raises(CannotRender, match=r"rke\.cattle\.io/labels"):
        config(machine(annotations={"rke.cattle.io/labels": "{"}))


@pytest.mark.parametrize(("profile", "rendered"), [("cis", "cis"), ("cis-1.6", None), ("", "")])
def test_a_value_that_would_keep_a_host_from_starting_is_left_out_and_told(profile: str, rendered: str | None) -> None:
    spec = {"machineGlobalConfig": {"profile": profile}}
    assert config(driven(), INIT, spec).get("profile") == (rendered or None)
    found = ignored_arguments(facts().release, inputs.snapshot(spec).control_plane)
    told = f"profile: {inputs.RKE2} does not start with cis-1.6; known values are cis, etcd"
    assert found == ((told,) if profile and not rendered else ())


def test_a_flag_that_a_component_would_end_at_is_left_out_and_told() -> None:
    given = {"kubelet-arg": ["max-pods=99", "pod-infra-container-image=p"], "kube-apiserver-arg": "profiling=perhaps"}
    spec = {"machineGlobalConfig": given}
    older, newer = facts("v1.34.1+k3s1"), facts("v1.36.4+k3s1")
    assert config(machine(), INIT, spec, older)["kubelet-arg"] == given["kubelet-arg"]
    found = config(machine(), INIT, spec, newer)
    assert (found["kubelet-arg"], found.get("kube-apiserver-arg")) == (["max-pods=99"], None)
    assert ignored_arguments(newer.release, inputs.snapshot(spec).control_plane) == (
        "kube-apiserver-arg: v1.36.4+k3s1 does not start with profiling=perhaps; "
        "kube-apiserver takes true or false for profiling",
        "kubelet-arg: v1.36.4+k3s1 does not start with pod-infra-container-image=p; "
        "kubelet 1.36 has no flag pod-infra-container-image",
    )


def test_later_arguments_win_and_unknown_ones_are_left_out() -> None:
    spec = {
        "machineGlobalConfig": {
            "cni": "cilium",
            "disable": ["a"],
            "made-up": "x",
            "lb-server-port": 5,
            "kubelet-arg": {"a": 1},
            "tls-san": [],
        },
        "machineSelectorConfig": [
            {"machineLabelSelector": {"matchLabels": {"pool": "one"}}, "config": {"cni": "canal", "selinux": "True"}},
            {"config": {"protect-kernel-defaults": "no"}},
            {"machineLabelSelector": {"matchLabels": {"pool": "two"}}, "config": {"cni": "none"}},
        ],
    }
    found = config(machine(labels={"pool": "one"}), INIT, spec)
    assert {name: found.get(name) for name in ("cni", "disable", "selinux", "protect-kernel-defaults")} == {
        "cni": "canal",
        "disable": ["a"],
        "selinux": True,
        "protect-kernel-defaults": False,
    }
    assert not {"made-up", "lb-server-port", "kubelet-arg", "tls-san"} & set(found)
    assert ignored_arguments(facts().release, inputs.snapshot(spec).control_plane) == (
        "kubelet-arg: its value must be a text, a list, true or false",
        "lb-server-port: its value must be a text, a list, true or false",
        "made-up: v1.34.1+rke2r1 has no such argument",
    )


def test_a_registry_for_the_whole_cluster_does_not_stop_workers_of_k3s() -> None:
    spec = {"machineGlobalConfig": {"system-default-registry": "registry.example.com", "audit-policy-file": "rules: []"}}
    known = facts(inputs.K3S)
    assert config(machine("etcd,control-plane"), INIT, spec, known)["system-default-registry"] == "registry.example.com"
    worker = plan(machine("worker"), JOINED, spec, known)
    assert not {"system-default-registry", "audit-policy-file"} & set(config_of(worker, "k3s"))
    assert not [file.path for file in worker.files if "audit-policy-file" in file.path]
    assert ignored_arguments(known.release, inputs.snapshot(spec).control_plane, [machine("worker")]) == (
        "audit-policy-file: v1.34.1+k3s1 has no such argument",
    )


def test_an_argument_of_servers_is_reported_where_only_workers_are_selected() -> None:
    entry = {
        "machineLabelSelector": {"matchLabels": {"pool": "w"}},
        "config": {"system-default-registry": "r", "kubelet-arg": ["max-pods=5"]},
    }
    plane = inputs.snapshot({"machineSelectorConfig": [entry]}).control_plane
    server, worker = machine("etcd,control-plane"), machine("worker", labels={"pool": "w"})
    known = facts(inputs.K3S).release
    assert ignored_arguments(known, plane, [server, worker]) == (
        "system-default-registry: only servers of k3s have it, and its machineSelectorConfig selects none",
    )
    assert ignored_arguments(known, plane, [machine("etcd", labels={"pool": "w"}), worker]) == ()
    # Until there are machines, a selector may come to select a server.
    assert ignored_arguments(known, plane) == ()


def test_empty_values_are_not_reported() -> None:
    spec = {"machineGlobalConfig": {"protect-kernel-defaults": False, "made-up": "", "other": []}}
    assert ignored_arguments(facts(inputs.REMUDA).release, inputs.snapshot(spec).control_plane) == ()


def test_a_worker_gets_only_what_agents_understand() -> None:
    found = config(machine("worker"), JOINED, {"machineGlobalConfig": {"tls-san": ["a"], "kubelet-arg": ["max-pods=5"]}})
    assert found["kubelet-arg"] == ["max-pods=5"]
    assert not {"tls-san", "cni", "agent-token"} & set(found)


def test_what_users_say_of_ports_and_certificates_is_kept() -> None:
    spec = {
        "machineGlobalConfig": {
            "kube-scheduler-arg": ["secure-port=1", "cert-dir=/certs"],
            "kube-controller-manager-arg": "tls-cert-file=/c.crt",
            "kube-scheduler-extra-mount": ["/certs:/certs"],
        }
    }
    found = config(machine(), INIT, spec)
    assert found["kube-scheduler-arg"] == ["secure-port=1", "cert-dir=/certs"]
    assert found["kube-scheduler-extra-mount"] == ["/certs:/certs"]
    assert found["kube-controller-manager-arg"] == ["tls-cert-file=/c.crt", "secure-port=10257"]
    assert "kube-controller-manager-extra-mount" not in found


def test_prime_is_said_once_somebody_asks_for_it() -> None:
    def prime(annotations: dict[str, str], by_default: bool, version: str = "v1.34.11+rke2r1") -> Any:
        known = facts(version, prime_by_default=by_default)
        return inputs.config_of(
            inputs.plan(machine(), INIT, None, known, annotations=annotations), known.release.runtime.name
        ).get("prime")

    annotation = "provisioning.cattle.io/rke2-prime-enabled"
    assert prime({}, by_default=False) is None
    assert prime({annotation: "true"}, by_default=False) is True
    assert prime({}, by_default=True) is True
    assert prime({annotation: "false"}, by_default=True) is None
    assert prime({annotation: "true"}, by_default=True, version=inputs.K3S) is None
    # RKE2 has the flag since March 2026.
    assert prime({annotation: "true"}, by_default=True, version=inputs.RKE2) is None


def test_moved_data_directories_are_told() -> None:
    found = config(machine(), INIT, {"dataDirectories": {"k8sDistro": "/data/rke2"}})
    assert found["data-dir"] == "/data/rke2"
    assert found["kube-scheduler-arg"][0] == "cert-dir=/data/rke2/server/tls/kube-scheduler"
    assert "data-dir" not in config(machine(), INIT, {"dataDirectories": {"k8sDistro": "/var/lib/rancher/rke2"}})


def test_the_name_of_a_node_comes_from_its_registration() -> None:
    assert config(machine(plan_labels={"rke.cattle.io/node-name": "node-a"}))["node-name"] == "node-a"


def test_a_machine_that_is_not_told_where_to_join_stays_where_it_is() -> None:
    at = machine("worker", annotations={"rke.cattle.io/joined-to": "https://10.0.0.9:9345"})
    assert config(at, Join())["server"] == "https://10.0.0.9:9345"
    with pytest.raises(CannotRender, match="implausible joined server"):
        config(machine("worker"), Join())


def test_a_cluster_without_tokens_has_no_plans_yet() -> None:
    with pytest.raises(CannotRender, match="tokens"):
        desired_plan(facts(), dataclasses.replace(inputs.snapshot(), tokens=None), machine(), INIT)


class TestAddresses:
    @pytest.mark.parametrize(
        ("driver", "said"),
        [
            (Driver("amazonec2", "203.0.113.5", "10.0.0.5"), {"node-ip": ["10.0.0.5"], "node-external-ip": ["203.0.113.5"]}),
            (Driver("amazonec2", "10.0.0.5", "10.0.0.5"), {"node-ip": ["10.0.0.5"]}),
            (Driver("amazonec2", "203.0.113.5"), {}),
            (Driver("digitalocean", "203.0.113.5"), {"node-ip": ["203.0.113.5"]}),
            (Driver("digitalocean", "203.0.113.5", "", "2001:db8::5"), {"node-ip": ["203.0.113.5", "2001:db8::5"]}),
            (Driver("amazonec2", "169.254.1.1", "10.0.0.5"), {"node-ip": ["10.0.0.5"]}),
            (Driver("pod", "10.1.1.1", "10.2.2.2"), {}),
        ],
    )
    def test_a_driver_knows_them(self, driver: Driver, said: dict[str, list[str]]) -> None:
        found = config(driven("worker"), JOINED, None, facts(drivers={"m1": driver}))
        assert {name: value for name, value in found.items() if name in ("node-ip", "node-external-ip")} == said

    def test_a_machine_whose_driver_has_not_said_anything_waits(self) -> None:
        with pytest.raises(CannotRender, match="waiting for machine fleet-default/m1 driver config to be saved"):
            config(driven(), INIT, None, facts(drivers={}))

    def test_a_host_that_registers_names_its_own(self) -> None:
        said = {"rke.cattle.io/address": "203.0.113.5, 2001:db8::5", "rke.cattle.io/internal-address": "10.0.0.5,fd00::5"}
        found = config(machine(annotations=said))
        assert found["node-ip"] == ["10.0.0.5", "fd00::5"]
        assert found["node-external-ip"] == ["203.0.113.5", "2001:db8::5"]
        assert found["advertise-address"] == "10.0.0.5"
        assert found["tls-san"] == ["203.0.113.5", "2001:db8::5"]

    def test_the_family_of_the_services_comes_first(self) -> None:
        said = {"rke.cattle.io/internal-address": "10.0.0.5,fd00::5"}
        spec = {"machineGlobalConfig": {"service-cidr": "fd01::/112,10.43.0.0/16"}}
        assert config(machine(annotations=said), INIT, spec)["node-ip"] == ["fd00::5", "10.0.0.5"]

    def test_a_cloud_provider_names_outside_addresses_itself(self) -> None:
        found = config(driven(), INIT, {"machineGlobalConfig": {"cloud-provider-name": "aws", "tls-san": ["api.example.org"]}})
        assert "node-external-ip" not in found
        assert found["tls-san"] == ["api.example.org", "203.0.113.5"]

    def test_a_host_in_a_directory_has_its_own_loopback(self) -> None:
        found = inputs.config_of(
            inputs.plan(machine(on=Layout("/srv/a", "127.4.5.6")), INIT, None, facts(inputs.REMUDA)),
            "remuda",
            "/srv/a",
        )
        assert found["node-ip"] == ["127.4.5.6"]
        assert found["data-dir"] == "/srv/a/var/lib/rancher/remuda"
        assert found["private-registry"] == "/srv/a/etc/rancher/remuda/registries.yaml"
