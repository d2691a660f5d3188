"""What a plan runs and asks: the installer and its stamps, probes, periodic instructions, commands that run once."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from remuda.provisioning.host_layout import Layout
from remuda.provisioning.planner.render import BuiltInRegistry, PlanInputs, idempotent_commands
from remuda.provisioning.planner.render import install as installing
from remuda.provisioning.planner.snapshot import CannotRender, Join, Machine
from remuda.provisioning.plans.plan import HttpGet, Plan, Probe, instruction, variable
from remuda.provisioning.releases.distributions import RKE2, Directories

from . import inputs
from .inputs import INIT, JOINED, facts, machine, plan


def stamps(found: Plan) -> tuple[str, str]:
    install = instruction(found, "install")
    return variable(install, "RESTART_STAMP"), variable(install, "DRAIN_HASH")


class TestInstall:
    def test_a_server_is_installed_from_its_versions_image(self) -> None:
        found = plan(spec={"agentEnvVars": [{"name": "HTTP_PROXY", "value": "http://p"}, {"name": "EMPTY", "value": ""}]})
        (install,) = found.instructions
        restart, drain = stamps(found)
        assert (install.name, install.command, install.args) == ("install", "sh", ("-c", "run.sh"))
        assert install.image == "rancher/system-agent-installer-rke2:v1.34.1-rke2r1"
        assert install.env == (
            f"RESTART_STAMP={restart}",
            f"DRAIN_HASH={drain}",
            "HTTP_PROXY=http://p",
            "RKE2_DATA_DIR=/var/lib/rancher/rke2",
        )

    @pytest.mark.parametrize(
        ("version", "said"),
        [
            (inputs.RKE2, ("RKE2_DATA_DIR=/var/lib/rancher/rke2", "INSTALL_RKE2_EXEC=agent")),
            (inputs.K3S, ("K3S_DATA_DIR=/var/lib/rancher/k3s", "INSTALL_K3S_EXEC=agent")),
            (inputs.REMUDA, ("REMUDA_DATA_DIR=/var/lib/rancher/remuda", "INSTALL_REMUDA_EXEC=agent")),
        ],
    )
    def test_a_worker_is_installed_as_an_agent(self, version: str, said: tuple[str, ...]) -> None:
        assert plan(machine("worker"), JOINED, None, facts(version)).instructions[0].env[2:] == said

    @pytest.mark.parametrize(
        ("version", "image"),
        [
            (inputs.REMUDA, f"gate:8443/rancher/system-agent-installer-remuda:{inputs.REMUDA.replace('+', '-')}"),
            (inputs.K3S, f"rancher/system-agent-installer-k3s:{inputs.K3S.replace('+', '-')}"),
        ],
    )
    def test_only_the_installers_of_our_own_distribution_are_had_from_us(self, version: str, image: str) -> None:
        found = plan(machine(), INIT, None, facts(version, built_in_registry=BuiltInRegistry("gate:8443", "PEM")))
        assert found.instructions[0].image == image

    def test_a_host_in_a_directory_is_told_its_root(self) -> None:
        found = plan(machine("worker", on=Layout("/srv/a", "127.4.5.6")), JOINED, None, facts(inputs.REMUDA))
        assert found.instructions[0].env[2:] == (
            "REMUDA_DATA_DIR=/srv/a/var/lib/rancher/remuda",
            "REMUDA_ROOT=/srv/a",
            "INSTALL_REMUDA_EXEC=agent",
        )

    @pytest.mark.parametrize(
        ("name", "registry", "resolved"),
        [
            ("rancher/x:v1", "", "rancher/x:v1"),
            ("rancher/x:v1", "r.example.org", "r.example.org/rancher/x:v1"),
            ("rancher/x:v1", "r.example.org/mirror", "r.example.org/mirror/rancher/x:v1"),
            ("x:v1", "r.example.org", "r.example.org/rancher/x:v1"),
            ("r.example.org/rancher/x:v1", "r.example.org", "r.example.org/rancher/x:v1"),
            ("gate:8443/rancher/x:v1", "r.example.org", "gate:8443/rancher/x:v1"),
        ],
    )
    def test_an_image_comes_from_the_clusters_registry(self, name: str, registry: str, resolved: str) -> None:
        assert installing.resolved(name, registry) == resolved


class TestStamps:
    def test_they_are_hashes_of_generation_image_files_and_config_generation(self) -> None:
        found = plan(spec={"provisionGeneration": 3}, config_generation=4)
        counted = [file for file in found.files if not file.dynamic]
        text = f"3{found.instructions[0].image}" + "".join(file.path + file.content for file in counted) + "4"
        assert stamps(found)[0] == hashlib.sha256(text.encode()).hexdigest()

    @pytest.mark.parametrize(
        ("changed", "restarts", "drains"),
        [
            ({"spec": {"machineGlobalConfig": {"kubelet-arg": ["max-pods=5"]}}}, True, True),
            ({"spec": {"provisionGeneration": 1}}, True, True),
            ({"config_generation": 1}, True, True),
            ({"known": facts("v1.33.5+rke2r1")}, True, True),
            ({"spec": {"registries": {"mirrors": {"docker.io": {"endpoint": ["https://m"]}}}}}, True, True),
            ({"join": Join(server="https://10.0.0.9:9345")}, True, False),
            ({"spec": {"additionalManifest": "kind: X"}}, False, False),
            ({"spec": {"chartValues": {"a": {"b": 1}}}}, False, False),
            ({"spec": {"agentEnvVars": [{"name": "A", "value": "b"}]}}, False, False),
            ({"known": facts(agent_manifest=lambda taints: "new")}, False, False),
        ],
    )
    def test_a_change_restarts_or_drains_only_when_it_must(self, changed: dict[str, Any], restarts: bool, drains: bool) -> None:
        before, after = plan(machine(), JOINED), plan(machine(), **{"join": JOINED, **changed})
        assert before != after
        assert (stamps(before)[0] != stamps(after)[0], stamps(before)[1] != stamps(after)[1]) == (restarts, drains)

    def test_becoming_the_first_server_drains_nothing(self) -> None:
        known = facts(inputs.K3S)
        first, joined = plan(machine(), INIT, None, known), plan(machine(), JOINED, None, known)
        assert stamps(first)[0] != stamps(joined)[0]
        assert stamps(first)[1] == stamps(joined)[1]


class TestProbes:
    def urls(self, of: Machine, spec: dict[str, Any] | None = None, known: PlanInputs | None = None) -> dict[str, str]:
        return {name: probe.httpGet.url for name, probe in plan(of, JOINED, spec, known).probes.items()}

    def test_an_rke2_server_answers_for_every_component(self) -> None:
        assert self.urls(machine()) == {
            "calico": "http://localhost:9099/liveness",
            "etcd": "http://localhost:2381/health",
            "kube-apiserver": "https://localhost:6443/readyz",
            "kube-controller-manager": "https://localhost:10257/healthz",
            "kube-scheduler": "https://localhost:10259/healthz",
            "kubelet": "http://localhost:10248/healthz",
        }

    @pytest.mark.parametrize(
        ("version", "roles", "asked"),
        [
            (inputs.RKE2, "etcd", {"etcd", "kubelet"}),
            (
                inputs.RKE2,
                "control-plane",
                {"calico", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"},
            ),
            (inputs.RKE2, "worker", {"calico", "kubelet"}),
            (inputs.K3S, "etcd", set()),
            (inputs.K3S, "etcd,control-plane", {"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"}),
            (inputs.K3S, "worker", {"kubelet"}),
            (inputs.REMUDA, "worker", {"kubelet"}),
        ],
    )
    def test_a_role_is_asked_for_what_it_runs(self, version: str, roles: str, asked: set[str]) -> None:
        assert set(self.urls(machine(roles), None, facts(version))) == asked

    @pytest.mark.parametrize(
        ("cni", "asked"), [("calico", True), ("calico+multus", True), ("", True), ("cilium", False), (["multus", "canal"], False)]
    )
    def test_calico_is_asked_only_where_it_is(self, cni: Any, asked: bool) -> None:
        assert ("calico" in self.urls(machine("worker"), {"machineGlobalConfig": {"cni": cni}})) is asked

    def test_the_api_server_is_asked_with_certificates_of_the_host(self) -> None:
        tls = "/var/lib/rancher/rke2/server/tls"
        assert plan().probes["kube-apiserver"] == Probe(
            initialDelaySeconds=1,
            timeoutSeconds=5,
            successThreshold=1,
            failureThreshold=5,
            httpGet=HttpGet(
                "https://localhost:6443/readyz",
                clientCert=f"{tls}/client-kube-apiserver.crt",
                clientKey=f"{tls}/client-kube-apiserver.key",
                caCert=f"{tls}/server-ca.crt",
            ),
        )

    def test_components_are_asked_where_the_user_put_them(self) -> None:
        spec = {
            "machineGlobalConfig": {
                "kube-scheduler-arg": ["secure-port=1234", "tls-cert-file=/own.crt"],
                "kube-controller-manager-arg": ["cert-dir=/certs"],
            }
        }
        found = plan(spec=spec).probes
        assert found["kube-scheduler"].httpGet == HttpGet("https://localhost:1234/healthz", caCert="/own.crt")
        manager = found["kube-controller-manager"].httpGet
        assert manager == HttpGet("https://localhost:10257/healthz", caCert="/certs/kube-controller-manager.crt")

    def test_a_host_in_a_directory_has_them_below_it(self) -> None:
        spec = {"machineGlobalConfig": {"kube-scheduler-arg": ["tls-cert-file=/own.crt"]}}
        found = plan(machine(on=Layout("/srv/a", "127.4.5.6")), INIT, spec, facts(inputs.REMUDA)).probes
        certificates = [found[name].httpGet for name in ("kube-scheduler", "kube-controller-manager")]
        assert [each.caCert for each in certificates if each] == [
            "/srv/a/own.crt",
            "/srv/a/var/lib/rancher/remuda/server/tls/kube-controller-manager/kube-controller-manager.crt",
        ]

    @pytest.mark.parametrize(
        ("stack", "on", "host"),
        [
            ("ipv4", Layout(), "127.0.0.1"),
            ("ipv6", Layout(), "[::1]"),
            ("dual", Layout(), "localhost"),
            ("ipv6", Layout("/a", "127.4.5.6"), "127.4.5.6"),
        ],
    )
    def test_the_host_is_asked_on_its_loopback(self, stack: str, on: Layout, host: str) -> None:
        found = self.urls(machine("worker", on=on), {"networking": {"stackPreference": stack}})
        assert found["kubelet"] == f"http://{host}:10248/healthz"


class TestPeriodic:
    def test_a_first_member_without_an_api_tells_its_address(self) -> None:
        *found, snapshots, certificates = plan(machine("etcd"), INIT).periodicInstructions
        assert (snapshots.name, certificates.name) == ("snapshots", "certificates")
        assert [(one.name, one.command, one.args, one.periodSeconds) for one in found] == [
            (
                "capture-address",
                "sh",
                (
                    "-c",
                    "curl -f --retry 100 --retry-delay 5 --cacert /var/lib/rancher/rke2/server/tls/server-ca.crt "
                    "https://localhost:9345/db/info | grep 'clientURLs'",
                ),
                600,
            ),
            ("etcd-name", "sh", ("-c", "cat /var/lib/rancher/rke2/server/db/etcd/name"), 600),
        ]

    def test_no_other_host_does(self) -> None:
        others = (
            plan(machine("etcd"), JOINED),
            plan(machine(), INIT),
            plan(machine("etcd", annotations=inputs.WITHOUT_JOIN_URL), INIT),
        )
        for found in others:
            assert [one.name for one in found.periodicInstructions] == ["snapshots", "certificates"]
        assert [one.name for one in plan(machine("worker")).periodicInstructions] == ["certificates"], "it has no etcd"

    @pytest.mark.parametrize("roles", ["etcd,control-plane,worker", "worker"])
    def test_every_host_reports_its_certificates_twice_a_day(self, roles: str) -> None:
        found = plan(machine(roles, on=Layout("/srv/it's", "127.4.5.6")), JOINED).periodicInstructions[-1]
        assert (found.name, found.command, found.args[0], found.periodSeconds) == ("certificates", "sh", "-c", 43_200)
        assert found.args[1].startswith("cd '/srv/it'\"'\"'s/var/lib/rancher/rke2' || exit 1\n")
        assert "key" not in found.args[1]


def test_windows_is_not_offered_yet() -> None:
    with pytest.raises(CannotRender, match="Windows"):
        plan(machine("worker", plan_labels={"cattle.io/os": "windows"}), JOINED)


def test_a_layout_that_no_host_may_have_is_told() -> None:
    with pytest.raises(CannotRender, match="root"):
        plan(machine("worker", annotations={"remuda.dev/layout": '{"root":"/a/../b"}'}), JOINED)


class TestIdempotence:
    def test_a_command_is_named_by_its_value_and_itself(self) -> None:
        value, command = hashlib.sha256(b"1").hexdigest(), hashlib.sha256(b"/bin/touch").hexdigest()
        found = idempotent_commands.instruction(Directories.of(RKE2), "Etcd-Restore", "1", "/bin/touch", ["a"], ["X=1"])
        assert found.name == f"idempotent-Etcd-Restore-{value}-{command}"
        assert found.command == "/bin/sh"
        assert found.env == ("X=1",)
        script = "/var/lib/rancher/capr/idempotence/idempotent.sh"
        assert found.args == ("-x", script, "etcd-restore", value, command, "/bin/touch", "/var/lib/rancher/capr", "a")
