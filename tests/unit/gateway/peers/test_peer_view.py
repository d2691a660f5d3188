"""Who sees whom, as one of the servers tells it."""

from __future__ import annotations

from remuda.gateway.peers.directory import Introduction
from remuda.gateway.peers.peer_view import PeerView


def server(name: str, sees: dict[str, str], host: str = "") -> Introduction:
    return Introduction(
        host=host or f"host-{name}", address=f"10.0.0.{name}:6443", certificate="ab" * 32, secret="s", since=1.0, sees=sees
    )


ALL = {"1": server("1", {"2": "", "3": ""}), "2": server("2", {"1": "", "3": ""}), "3": server("3", {"1": "", "2": ""})}


def test_three_that_reach_each_other_have_six_connections() -> None:
    view = PeerView("1", ALL, {"2": 4, "3": 0})
    assert len(view.links()) == 6 and view.problems() == []
    assert view.text().splitlines() == [
        "this server is host-1; others: 2",
        "host-2 has 4 tunnels",
        "host-3 has 0 tunnels",
        "[+]host-1 to host-2: connected",
        "[+]host-1 to host-3: connected",
        "[+]host-2 to host-1: connected",
        "[+]host-2 to host-3: connected",
        "[+]host-3 to host-1: connected",
        "[+]host-3 to host-2: connected",
        "peers check passed",
    ]


def test_a_cut_between_two_is_told_by_the_third_with_the_reason() -> None:
    cut = {**ALL, "2": server("2", {"1": "", "3": "no route to host"})}
    assert [str(each) for each in PeerView("1", cut, {"2": 0, "3": 0}).problems()] == ["host-2 to host-3: no route to host"]


def test_what_is_seen_here_counts_more_than_what_was_published() -> None:
    problems = PeerView("1", ALL, {"2": 0}).problems()
    assert [str(each) for each in problems] == ["host-3 to host-1: it is not connected any more"]
    said = {**ALL, "3": server("3", {"1": "connection refused", "2": ""})}
    assert PeerView("1", said, {"2": 0, "3": 0}).problems() == []
    assert [each.problem for each in PeerView("1", said, {"2": 0}).problems()] == ["connection refused"]


def test_programs_get_the_same() -> None:
    both = {"1": server("1", {"2": ""}), "2": server("2", {"1": "connection refused"})}
    links = [
        {"from": "host-1", "to": "host-2", "problem": ""},
        {"from": "host-2", "to": "host-1", "problem": "connection refused"},
    ]
    assert PeerView("1", both, {}).document() == {"server": "host-1", "others": 1, "ok": False, "links": links}


def test_a_server_that_has_just_come_is_not_known_to_all_yet() -> None:
    new = {**ALL, "4": server("4", {})}
    assert {each.problem for each in PeerView("1", new, {"2": 0, "3": 0, "4": 0}).problems()} == {"it has not heard of it yet"}


def test_servers_on_one_host_are_told_apart() -> None:
    both = {"1": server("1", {"2": ""}, "h"), "2": server("2", {"1": ""}, "h")}
    assert PeerView("1", both, {"2": 0}).text().splitlines()[0] == "this server is h (10.0.0.1:6443); others: 1"
