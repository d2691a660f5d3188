"""Servers and nodes that join: learner first, with the right token only, and each node by its own name."""

from __future__ import annotations

import http.client
import ssl

import pytest

from .machines import TOKEN, Machines, eventually

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(900)]


def test_three_servers_and_a_node_are_one_cluster_and_outlive_a_server(machines: Machines) -> None:
    first = machines.add("first").server(**{"cluster-init": True}).ready()
    secure = (first.data / "server/token").read_text().strip()
    assert secure.startswith("K10") and secure.endswith(f"::server:{TOKEN}")
    # Both at once: etcd takes one learner at a time, so one of them has to wait.
    second = machines.add("second").server(server=first.url, token=secure)
    third = machines.add("third").server(server=first.url, token=secure)
    worker = machines.add("worker").agent(server=first.url, token=(first.data / "server/agent-token").read_text().strip())
    servers = (first, second, third)
    for each in servers:
        each.ready()
    # Each says what its own member knows, and the last one to hear of it need not be the one that joined.
    eventually(lambda: first.voters() == {each.address for each in servers})
    for name in ("server-ca.crt", "client-ca.key", "service.key", "etcd/peer-ca.key"):
        assert len({(each.tls / name).read_bytes() for each in servers}) == 1, name
    eventually(lambda: third.ready_nodes() == {"first", "second", "third", "worker"}, why="not all nodes are ready")
    labels = third.node("worker")["metadata"]["labels"]
    assert not any(label.startswith("node-role.kubernetes.io/") for label in labels)
    # What is written through one is read through the others.
    second.write("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "written"}})
    assert eventually(lambda: third.get("/api/v1/namespaces/default/configmaps/written"))
    assert all(each.memory() < 120 * 2**20 for each in servers), [each.memory() for each in servers]

    # The one that all have joined dies; nothing is lost, and it comes back with what it had.
    first.kill()
    assert eventually(lambda: second.get("/api/v1/namespaces/default/configmaps/written"))
    second.write("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "later"}})
    worker.kill()
    worker.start()
    first.start().ready()
    assert eventually(lambda: first.get("/api/v1/namespaces/default/configmaps/later"))
    eventually(lambda: first.ready_nodes() == {"first", "second", "third", "worker"}, why="not all nodes came back")

    # A member leaves when its Node says so, and does not come back by itself.
    marked = {"metadata": {"annotations": {"etcd.remuda.cattle.io/remove": "true"}}}
    member = eventually(lambda: first.node("third")["metadata"]["annotations"]["etcd.remuda.cattle.io/node-name"])
    first.write("PATCH", "/api/v1/nodes/third", marked, "application/merge-patch+json")

    def is_removed() -> bool:
        return bool(first.node("third")["metadata"]["annotations"].get("etcd.remuda.cattle.io/removed-node-name") == member)

    eventually(is_removed, why="the Node does not say that its member is out")
    eventually(lambda: first.voters() == {first.address, second.address})
    assert "was removed from the cluster's etcd" in third.ended()
    third.start()
    eventually(lambda: "to let it join again" in third.told())
    eventually(lambda: first.voters() == {first.address, second.address})
    # A new configuration is a new beginning, once the Node is gone.
    third.kill()
    first.write("DELETE", "/api/v1/nodes/third")
    third.server(server=first.url, token=secure, **{"node-label": ["again=yes"]}).ready()
    eventually(lambda: first.voters() == {each.address for each in servers})


def test_who_may_not_join_is_told_why(machines: Machines) -> None:
    first = machines.add("first").server(**{"cluster-init": True, "agent-token": "the-token-of-the-nodes"}).ready()
    secure = (first.data / "server/token").read_text().strip()

    wrong = machines.add("wrong").server(server=first.url, token="some-other-token-it-is")
    assert "refuses the token" in wrong.ended()
    other_ca = secure[:3] + "0" * 64 + secure[67:]
    wrong.server(server=first.url, token=other_ca)
    assert "but the token says 0000" in wrong.ended()
    # The nodes' token is not enough for a server, nor the other way round.
    wrong.server(server=first.url, token="the-token-of-the-nodes")
    assert wrong.ended().count("refuses the token") == 2
    wrong.agent(server=first.url, token=TOKEN)
    assert wrong.ended().count("refuses the token") == 3
    # Nobody has told it the CA's keys.
    assert not (wrong.tls / "server-ca.key").exists()
    assert len(first.members()) == 1

    # A name can be had by one host only: by who came first.
    eventually(lambda: first.ready_nodes() == {"first"})
    taker = machines.add("taker").agent(server=first.url, token="the-token-of-the-nodes", **{"node-name": "first"})
    assert "another host is the node first" in taker.ended()
    # Nor does a server that has it get a place in etcd.
    taker.server(server=first.url, token=secure, **{"node-name": "first"})
    assert taker.ended().count("another host is the node first") == 2
    assert len(first.members()) == 1
    taker.agent(server=first.url, token="the-token-of-the-nodes")
    eventually(lambda: first.ready_nodes() == {"first", "taker"})
    # A second server on the same data is refused, and harms nothing.
    assert "another server runs on" in first.run("server").stderr
    _nobody_gets_in_without_a_certificate(first.address)


def _nobody_gets_in_without_a_certificate(address: str) -> None:
    """etcd speaks to nobody whom its own CA does not know."""
    blind = ssl.create_default_context()
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    for port in (2379, 2380):
        connection = http.client.HTTPSConnection(address, port, context=blind, timeout=30)
        with pytest.raises((OSError, http.client.HTTPException)):
            connection.request("GET", "/version")
            connection.getresponse()
        connection.close()
