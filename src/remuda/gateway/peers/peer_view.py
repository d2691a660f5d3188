"""Who sees whom: the connections between the servers of one state, as one of them knows them.

Pure. Each server publishes which of the others it can't reach and why (:class:`.directory.Introduction`), so that every server
can tell of all connections, also of those between two others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .directory import Introduction


@dataclass(frozen=True, slots=True)
class Link:
    """The connection of `caller` to `called`, by which `called` reaches the clusters that are connected to `caller`.

    `problem` is empty when it is there.
    """

    caller: str
    called: str
    problem: str

    def __str__(self) -> str:
        return f"{self.caller} to {self.called}: {self.problem or 'connected'}"


@dataclass(frozen=True, slots=True)
class PeerView:
    """What this server knows. `clients` has the servers that are connected to it, with the number of their tunnels."""

    own: str
    servers: Mapping[str, Introduction]
    clients: Mapping[str, int]

    def names(self) -> dict[str, str]:
        """A name of each server for people: its host, and its address where several are on one."""
        hosts = [each.host for each in self.servers.values()]
        return {
            name: each.host if hosts.count(each.host) == 1 and each.host else f"{each.host} ({each.address})"
            for name, each in self.servers.items()
        }

    def links(self) -> list[Link]:
        """Every connection that should be there, those of this server first."""
        names = self.names()
        ordered = sorted(self.servers, key=lambda name: (name != self.own, names[name], name))
        return [
            Link(names[caller], names[called], self._problem(caller, called))
            for caller in ordered
            for called in ordered
            if caller != called
        ]

    def _problem(self, caller: str, called: str) -> str:
        said = self.servers[caller].sees.get(called, "it has not heard of it yet")
        if called == self.own and caller not in self.clients:
            return said or "it is not connected any more"
        # What is seen here counts more than what the other has published a moment ago.
        return "" if called == self.own else said

    def problems(self) -> list[Link]:
        return [each for each in self.links() if each.problem]

    def document(self) -> dict[str, object]:
        """The same for programs."""
        links = [{"from": each.caller, "to": each.called, "problem": each.problem} for each in self.links()]
        return {"server": self.names()[self.own], "others": len(self.servers) - 1, "ok": not self.problems(), "links": links}

    def text(self) -> str:
        """As the health checks of an API server: a line for each connection, and the result."""
        names, tunnels = self.names(), self.clients
        lines = [f"this server is {names[self.own]}; others: {len(self.servers) - 1}"]
        lines += [f"{names[name]} has {count} tunnels" for name, count in sorted(tunnels.items()) if name in names]
        lines += [f"[{'-' if each.problem else '+'}]{each}" for each in self.links()]
        return "\n".join([*lines, f"peers check {'failed' if self.problems() else 'passed'}", ""])
