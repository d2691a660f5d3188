"""Join URLs, and whom a worker joins."""

from __future__ import annotations

import json
from dataclasses import replace

from remuda.provisioning import well_known
from remuda.provisioning import well_known as keys
from remuda.provisioning.planner.election import Servers, join_annotations, server_in
from remuda.provisioning.planner.snapshot import Address, Join, Periodic

from .world import done, machine, render, running, snapshot, url, with_node

MARK = {well_known.INIT_NODE: "true"}


def test_a_node_is_reached_at_its_last_internal_address() -> None:
    addresses = (Address("ExternalIP", "1.2.3.4"), Address("InternalIP", "10.0.0.1"), Address("InternalIP", "10.0.0.2"))
    member = machine("a", addresses=addresses, kubelet_version="v1.34.1")
    assert join_annotations(snapshot(), member) == {well_known.JOIN_URL: "https://10.0.0.2:9345"}
    assert join_annotations(snapshot(supervisor_port=6443), replace(member, addresses=addresses[:1])) == {
        well_known.JOIN_URL: "https://1.2.3.4:6443"
    }


def test_no_address_is_taken_before_there_is_a_node_or_if_the_user_gives_it() -> None:
    addresses = (Address("InternalIP", "fd00::1"),)
    member = machine("a", addresses=addresses)
    assert join_annotations(snapshot(), member) == {}
    known = replace(member, kubelet_version="v1.34.1")
    assert join_annotations(snapshot(), known) == {well_known.JOIN_URL: "https://[fd00::1]:9345"}
    assert join_annotations(snapshot(), known.with_plan_metadata({}, {keys.JOIN_URL_AUTOSET_DISABLED: ""})) == {}


def test_a_machine_whose_plan_secret_is_gone_is_told_nothing() -> None:
    member = machine("a", addresses=(Address("InternalIP", "10.0.0.1"),), kubelet_version="v1.34.1")
    assert join_annotations(snapshot(), replace(member, secret=None)) == {}


def test_an_init_node_that_is_etcd_alone_tells_its_address_itself() -> None:
    members = {
        "members": [
            {"name": "x", "clientURLs": ["https://10.0.0.8:2379"]},
            {"name": "a-1", "clientURLs": ["https://[fd00::9]:2379"]},
        ]
    }
    said = {"capture-address": Periodic(f"* ok\n{json.dumps(members)}\n"), "etcd-name": Periodic("a-1\n")}
    member = machine("a", "e", marks=MARK, notes={well_known.JOINED_TO: ""})
    told = with_node(member, replace(done(render(snapshot(), member, Join(init=True))), periodic=said))
    assert join_annotations(snapshot(), told) == {well_known.JOIN_URL: "https://[fd00::9]:9345"}
    assert told.node is not None
    for nonsense in ("{no json", '{"members":' * 5000, '{"members": [{"name": "a-1", "clientURLs": ["https://[fd00"]}]}'):
        garbled = replace(told.node, periodic={**said, "capture-address": Periodic(nonsense)})
        assert join_annotations(snapshot(), with_node(told, garbled)) == {}


def test_whom_a_machine_joined_is_read_back_from_its_plan() -> None:
    member = machine("a")
    node = done(render(snapshot(), member, Join(server="https://b:9345")))
    assert server_in(node.plan) == "https://b:9345"
    assert join_annotations(snapshot(), with_node(member, node)) == {well_known.JOINED_TO: "https://b:9345"}


def test_workers_stay_with_their_server_as_long_as_it_stays() -> None:
    picture = running(("a", "ec"), ("b", "ec"), ("w", "w"))
    servers = Servers.among(picture.by_name())
    assert servers.offered == (url("a"), url("b"))
    assert servers.for_worker(machine("w", "w", notes={well_known.JOINED_TO: url("b")})) == url("b")
    assert servers.for_worker(machine("w", "w", notes={well_known.JOINED_TO: "https://gone:9345"})) in servers.offered
    assert Servers.among([machine("a", "ec")]).for_worker(machine("w", "w")) == ""


def test_workers_spread_over_servers() -> None:
    servers = Servers(frozenset(), ("a", "b", "c"))
    chosen = [servers.for_worker(machine(f"w{number}", "w")) for number in range(300)]
    assert all(60 < chosen.count(server) < 140 for server in servers.offered)
