"""One host for etcd, one for the control plane, one for work; and one member made of two when the other is lost."""

from __future__ import annotations

import pytest

from .machines import Machines, eventually

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(900)]

MAPS = "/api/v1/namespaces/default/configmaps"
ONLY_ETCD = {
    "disable-apiserver": True,
    "disable-controller-manager": True,
    "disable-scheduler": True,
    # None by itself, which would come at noon and at midnight.
    "etcd-disable-snapshots": True,
}


def test_etcd_control_plane_and_worker_are_hosts_of_their_own(machines: Machines) -> None:
    store = machines.add("store").server(**{"cluster-init": True, **ONLY_ETCD}).ready()
    # What the planner asks such a host for, which has no Node yet.
    info = store.supervisor("/db/info").json["members"][0]
    assert info["name"] == (store.data / "server/db/etcd/name").read_text().strip()
    assert info["clientURLs"] == [f"https://{store.address}:2379"]
    plane = machines.add("plane").server(server=store.url, **{"disable-etcd": True}).ready()
    machines.add("worker").agent(server=plane.url)
    eventually(lambda: plane.ready_nodes() == {"store", "plane", "worker"}, why="not all nodes are ready")
    labels = plane.node("store")["metadata"]["labels"]
    assert "node-role.kubernetes.io/etcd" in labels and "node-role.kubernetes.io/control-plane" not in labels
    assert "node-role.kubernetes.io/etcd" not in plane.node("plane")["metadata"]["labels"]
    with pytest.raises(OSError):
        store.ask("GET", "/readyz")

    # A second member joins the first through the control plane, which then knows it, too.
    other = machines.add("other").server(server=plane.url, **ONLY_ETCD).ready()
    eventually(lambda: store.voters() == {store.address, other.address})
    eventually(lambda: plane.ready_nodes() == {"store", "plane", "worker", "other"})
    saved = other.run("etcd-snapshot", "save")
    assert saved.returncode == 0, saved.stderr
    files = eventually(lambda: plane.get("/apis/k3s.cattle.io/v1/etcdsnapshotfiles")["items"])
    assert files[0]["spec"]["nodeName"] == "other"
    # The first one goes, with its Node, and the control plane goes on with the other.
    plane.write("POST", MAPS, {"metadata": {"name": "kept"}})
    plane.write("DELETE", "/api/v1/nodes/store")
    eventually(lambda: plane.ask("GET", "/api/v1/nodes/store").status == 404, why="the Node does not go")
    eventually(lambda: other.voters() == {other.address})
    store.kill()
    assert eventually(lambda: plane.get(f"{MAPS}/kept"))
    plane.write("POST", MAPS, {"metadata": {"name": "later"}})
    plane.kill()
    plane.start().ready()
    assert plane.get(f"{MAPS}/later")


def test_one_of_two_is_enough_to_go_on_with_after_a_reset(machines: Machines) -> None:
    first = machines.add("first").server(**{"cluster-init": True}).ready()
    second = machines.add("second").server(server=first.url).ready()
    first.write("POST", MAPS, {"metadata": {"name": "kept"}})
    second.kill()
    # Half of two is no quorum: nothing is written, and nothing is said that is not known to be true.
    eventually(lambda: first.ask("POST", MAPS, {"metadata": {"name": "lost"}}).status in (503, 504))
    first.kill()
    done = first.run("server", "--cluster-reset")
    assert done.returncode == 0, done.stderr
    assert "already" in first.run("server", "--cluster-reset").stderr
    first.start().ready()
    assert first.get(f"{MAPS}/kept")
    assert first.voters() == {first.address}
    # The other begins anew, as somebody does who touches its tombstone.
    (second.data / "server/db/etcd/tombstone").touch()
    second.start().ready()
    eventually(lambda: first.voters() == {first.address, second.address})
    assert eventually(lambda: second.get(f"{MAPS}/kept"))
