"""The command that registers a host, with what was asked for."""

from __future__ import annotations

import pytest

from remuda.cli.remote.clusters import Details, InvalidMark, usable


@pytest.mark.parametrize(
    ("details", "arguments"),
    [
        (Details(), "--etcd --controlplane --worker"),
        (Details(("worker", "etcd", "worker")), "--etcd --worker"),
        (
            Details(("worker",), "n1", "1.2.3.4", "eth1"),
            "--worker --node-name n1 --address 1.2.3.4 --internal-address eth1",
        ),
        (
            Details(("worker",), labels=("a=b", "example.com/c="), taints=("d=e:NoSchedule", "f:NoExecute")),
            "--worker --label a=b --label example.com/c= --taints d=e:NoSchedule --taints f:NoExecute",
        ),
        (Details(("worker",), node_name="$(reboot)"), "--worker --node-name '$(reboot)'"),
    ],
)
def test_what_is_asked_for_becomes_arguments(details: Details, arguments: str) -> None:
    assert details.arguments() == arguments


@pytest.mark.parametrize(
    "details",
    [
        Details(labels=("a",)),
        Details(labels=("a=b=c",)),
        Details(labels=("a=b,c=d",)),
        Details(labels=("-a=b",)),
        Details(taints=("a=b",)),
        Details(taints=("a=b:Never",)),
        Details(taints=("a b=c:NoSchedule",)),
    ],
)
def test_what_no_node_could_have_is_refused(details: Details) -> None:
    with pytest.raises(InvalidMark):
        details.arguments()


def test_a_command_without_its_token_is_no_command() -> None:
    data = [{"nodeCommand": " curl … --token {token}"}, {}, {"nodeCommand": " curl … --token t1"}, {"nodeCommand": "other"}]
    assert usable(data, "nodeCommand") == "curl … --token t1"
    assert usable(data[:2], "nodeCommand") == ""
