"""Every setting by its name, and the command line that says them: k3s' words, so that k3s' documentation holds.

A setting may stand in a file (:mod:`.sources`) as well as on the command line; :mod:`.settings` gives them their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .sources import ConfigError


class Kind(StrEnum):
    TEXT = "text"
    TRUTH = "truth"
    NUMBER = "number"
    # Given once or more often.
    LIST = "list"


_TEXTS = (
    "agent-token advertise-address bind-address cluster-cidr cluster-dns cluster-domain cluster-reset-restore-path config "
    "data-dir etcd-binary etcd-snapshot-dir etcd-snapshot-name etcd-snapshot-schedule-cron etcdutl-binary log node-name release "
    "root server service-cidr service-node-port-range token token-file agent-token-file write-kubeconfig write-kubeconfig-mode "
    "write-kubeconfig-group secrets-encryption-provider system-default-registry private-registry name output "
    "cloud-provider-name lb-server-port provider-id"
)
_TRUTHS = (
    "cluster-init cluster-reset debug demo-etcd disable-agent disable-apiserver disable-cloud-controller "
    "disable-controller-manager disable-etcd disable-kube-proxy disable-scheduler etcd-disable-snapshots etcd-expose-metrics "
    "etcd-s3 etcd-snapshot-compress force secrets-encryption embedded-registry tls-san-security selinux prime"
)
_NUMBERS = "etcd-snapshot-retention https-listen-port snapshot-retention supervisor-port v"
_LISTS = (
    "disable etcd-arg kube-apiserver-arg kube-controller-manager-arg kube-scheduler-arg kubelet-arg kube-proxy-arg "
    "node-external-ip node-ip node-label node-taint service tls-san"
)

KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(_TEXTS.split(), Kind.TEXT),
    **dict.fromkeys(_TRUTHS.split(), Kind.TRUTH),
    **dict.fromkeys(_NUMBERS.split(), Kind.NUMBER),
    **dict.fromkeys(_LISTS.split(), Kind.LIST),
}
LISTS = frozenset(name for name, kind in KINDS.items() if kind is Kind.LIST)
_SHORT = {"c": "config", "d": "data-dir", "s": "server", "t": "token", "o": "output", "f": "force"}


@dataclass(frozen=True, slots=True)
class Line:
    """A command line: its words (the command and what it is about), and the settings it says."""

    words: tuple[str, ...]
    values: Mapping[str, Any]


def parse(arguments: Sequence[str]) -> Line:
    """Raises ConfigError for what is no setting."""
    words: list[str] = []
    values: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        # `-s` is the service of `certificate rotate`, as it is for k3s.
        name = "service" if name == "s" and words[:1] == ["certificate"] else _SHORT.get(name, name)
        if name.startswith("etcd-s3-"):
            # Where snapshots are also copied to: accepted, so that one configuration serves all commands.
            values[name] = value if equals else (rest.pop(0) if rest and not rest[0].startswith("-") else "true")
            continue
        _say(values, name, value if equals else None, rest)
    return Line(tuple(words), values)


def _say(values: dict[str, Any], name: str, value: str | None, rest: list[str]) -> None:
    kind = KINDS.get(name)
    if kind is None:
        raise ConfigError(f"there is no option --{name}")
    if value is None and kind is Kind.TRUTH:
        value = "true"
    if value is None:
        if not rest:
            raise ConfigError(f"--{name} needs a value")
        value = rest.pop(0)
    if kind is Kind.LIST:
        values.setdefault(name, []).append(value)
    else:
        values[name] = value
