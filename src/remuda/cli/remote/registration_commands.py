"""The command that registers a host with a cluster, or a cluster that is there already: what the server has, with what was asked
for. Pure, but for :func:`commands`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..exit_codes import Failure

if TYPE_CHECKING:
    from .connection import Remote

Obj = dict[str, Any]

ROLES = ("etcd", "controlplane", "worker")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TAINT = re.compile(r"(?P<key>[^=:]+)(?:=(?P<value>[^=:]*))?:(?P<effect>\w+)")
_TOKEN = "{token}"


class Unfit(ValueError):
    """A label or taint that no node could have; the text says why."""


@dataclass(frozen=True, slots=True)
class Details:
    """What a host is registered with. Without roles it gets all of them."""

    roles: tuple[str, ...] = ()
    node_name: str = ""
    address: str = ""
    internal_address: str = ""
    labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()

    def arguments(self) -> str:
        """For the install script, in the order in which Rancher puts them. Raises Unfit."""
        words = [f"--{role}" for role in ROLES if role in (self.roles or ROLES)]
        for option, value in (
            ("--node-name", self.node_name),
            ("--address", self.address),
            ("--internal-address", self.internal_address),
        ):
            words += [option, shlex.quote(value)] if value else []
        words += [word for each in self.labels for word in ("--label", shlex.quote(checked_label(each)))]
        words += [word for each in self.taints for word in ("--taints", shlex.quote(checked_taint(each)))]
        return " ".join(words)


def checked_label(text: str) -> str:
    from remuda.kube.names import label_value_problems, qualified_name_problems

    key, equals, value = text.partition("=")
    problems = [*qualified_name_problems(key), *label_value_problems(value)] if equals else ["it has to be KEY=VALUE"]
    if problems:
        raise Unfit(f"{text!r} is no label: {problems[0]}")
    return text


def checked_taint(text: str) -> str:
    from remuda.kube.names import label_value_problems, qualified_name_problems

    found = _TAINT.fullmatch(text)
    if found is None:
        raise Unfit(f"{text!r} is no taint: it has to be KEY=VALUE:EFFECT")
    if found["effect"] not in EFFECTS:
        raise Unfit(f"{text!r} is no taint: the effect has to be {', '.join(EFFECTS[:-1])} or {EFFECTS[-1]}")
    problems = [*qualified_name_problems(found["key"]), *label_value_problems(found["value"] or "")]
    if problems:
        raise Unfit(f"{text!r} is no taint: {problems[0]}")
    return text


def usable(data: Iterable[Obj], field: str) -> str:
    """The first command of its kind that has its token in it; "" if none has."""
    found = (str(each.get(field) or "") for each in data)
    return next((each.strip() for each in found if each and _TOKEN not in each), "")


def commands(remote: Remote, identifier: str, name: str, field: str) -> str:
    """`field`: nodeCommand, insecureNodeCommand, command or insecureCommand."""
    answer = remote.ask("GET", "/v3/clusterregistrationtokens", clusterId=identifier) if identifier else {}
    found = usable(answer.get("data") or (), field)
    if not found:
        raise Failure(f"cluster {name} has no registration command yet, or none that you may see; try again in a moment")
    return found
