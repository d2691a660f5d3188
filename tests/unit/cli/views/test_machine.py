"""What is said of a machine, and of what was tried for it."""

from __future__ import annotations

from typing import Any

from remuda.cli.views.machine import MachineView, attempt_rows, certificate_rows, certificates_data, machine_data, machine_lines
from remuda.cli.views.output import Output
from remuda.kube.clock import parse_rfc3339
from remuda.machines.machineprovision.job_outcome import JobAttempt
from remuda.provisioning.planner.certificate_expiry import HostCertificate, annotation

Obj = dict[str, Any]
NOW = parse_rfc3339("2026-03-01T00:10:00Z")
OBJ: Obj = {
    "metadata": {
        "name": "demo-w-1",
        "namespace": "fleet-default",
        "creationTimestamp": "2026-03-01T00:00:00Z",
        "labels": {"rke.cattle.io/rke-machine-pool-name": "w", "rke.cattle.io/worker-role": "true"},
    },
    "spec": {
        "clusterName": "demo",
        "providerID": "aws:///a/i-1",
        "infrastructureRef": {"apiGroup": "rke-machine.cattle.io", "kind": "LocalMachine", "name": "demo-w-1"},
    },
    "status": {"nodeRef": {"name": "n1"}, "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
}
FAILED = JobAttempt("u1", "demo-w-1", "LocalMachine", "create", "Failed", ended="2026-03-01T00:05:00Z", reason="QuotaExceeded")


def test_a_machine_in_lines() -> None:
    template = {
        "metadata": {"annotations": {"rke.cattle.io/cloned-from-kind": "LocalConfig", "rke.cattle.io/cloned-from-name": "nc"}}
    }
    infra = {"status": {"failureReason": "CreateError", "failureMessage": "no\nmore\n--- ended with exit status 1"}}
    machine = MachineView(OBJ, infra, template, {"metadata": {"name": "j"}}, (FAILED,))
    assert list(machine_lines(machine, NOW)) == [
        "machine demo-w-1  waiting  in fleet-default  10m",
        "  cluster   demo, pool w",
        "  roles     worker",
        "  waits for waiting for BootstrapConfigReady",
        "  node      n1",
        "  addresses 10.0.0.1 (InternalIP)",
        "  provider  aws:///a/i-1",
        "  made as   LocalMachine demo-w-1",
        "  config    LocalConfig nc",
        "  job       j (remuda machine logs demo-w-1)",
        "  failed    CreateError: no; more",
        "  tried     create Failed 5m ago: QuotaExceeded",
        "  shell     remuda ssh demo-w-1 (on the server's own machine)",
    ]


def test_what_is_not_known_is_left_out() -> None:
    machine = MachineView({"metadata": {"name": "m", "namespace": "ns", "creationTimestamp": "2026-03-01T00:00:00Z"}})
    data = machine_data(machine)
    assert data["infrastructure"] == {"group": "", "kind": "", "name": ""} and data["attempts"] == []
    assert not any(line.split()[0] in ("shell", "job", "config") for line in machine_lines(machine, NOW))


def test_attempts_are_rows() -> None:
    fine = JobAttempt("u2", "demo-w-2", "LocalMachine", "remove", "Complete", message="a\nb")
    assert list(attempt_rows([FAILED, fine], NOW)) == [
        ["demo-w-1", "create", "Failed", "5m ago", "QuotaExceeded", "", "u1"],
        ["demo-w-2", "remove", "Complete", "-", "-", "a; b", "u2"],
    ]


def test_certificates_that_expire_first_are_at_the_top() -> None:
    day = 86_400.0
    admin = HostCertificate("server/tls/client-admin.crt", "system:admin", "client", NOW + 300.5 * day)
    old = HostCertificate("server/tls/etcd/client.crt", "etcd-client", "client", NOW - 1.5 * day)
    soon = HostCertificate("agent/serving-kubelet.crt", "", "server", NOW + 6.5 * day)

    def machine(name: str, *found: HostCertificate) -> Obj:
        return {
            "metadata": {"name": name, "annotations": {"remuda.dev/certificates": annotation(found)}},
            "status": {"nodeRef": {"name": f"node-{name}"}},
        }

    silent: Obj = {"metadata": {"name": "new"}}
    data = certificates_data([machine("m1", admin, soon), machine("m2", old), silent], NOW)
    assert [(each["machine"], each["certificate"], each["daysLeft"]) for each in data] == [
        ("m2", "server/tls/etcd/client.crt", -2),
        ("m1", "agent/serving-kubelet.crt", 6),
        ("m1", "server/tls/client-admin.crt", 300),
    ]
    assert data[1]["notAfter"] == "2026-03-07T12:10:00Z"
    assert certificate_rows(data, Output()) == [
        ["m2", "server/tls/etcd/client.crt", "etcd-client", "client", "2026-02-27T12:10:00Z", "expired", "node-m2"],
        ["m1", "agent/serving-kubelet.crt", "-", "server", "2026-03-07T12:10:00Z", "6", "node-m1"],
        ["m1", "server/tls/client-admin.crt", "system:admin", "client", "2026-12-26T12:10:00Z", "300", "node-m1"],
    ]
