"""The chain of waits as a tree: what `remuda explain` prints. Pure; :mod:`remuda.gateway.explain.wait_chain` finds the chain."""

from __future__ import annotations

from collections.abc import Iterable

from remuda.gateway.explain import states
from remuda.gateway.explain.states import ClusterView
from remuda.gateway.explain.wait_advice import who
from remuda.gateway.explain.wait_chain import Link
from remuda.kube.duration import human_age
from remuda.kube.objects import name_of
from remuda.kube.waits import Actor, Wait

from .cluster_tree import Branch, Line, Piece

_MOST_BEHIND = 10
# Three kinds of the same name.
_WHOSE = {"management.cattle.io": "management ", "cluster.x-k8s.io": "Cluster API's "}


def of_chain(sight: ClusterView, links: tuple[Link, ...], now: float) -> Branch:
    state = states.of_cluster(sight.wanted, sight.managed, sight.plane)
    line = (Piece("cluster "), Piece(f"{name_of(sight.wanted)}  ", "bold"), Piece(state.word, state.colour))
    below = [_branch(link, now) for link in links if link.below or not link.again]
    behind = [link for link in links if link.again and not link.below]
    if behind:
        below.append(Branch((Piece("behind that", "bold"),), (), tuple(_behind(behind, now))))
    return Branch(line, (), tuple(below))


def _branch(link: Link, now: float) -> Branch:
    wait = link.wait
    more: list[Line] = [(Piece(f"{wait.code}{_since(wait, now)}; action: {who(wait)}", "dim"),)]
    if wait.on is not None and not link.below:
        more.append((Piece(f"waits on {wait.on}{', see above' if link.again else ''}", "dim"),))
    also = sorted({str(each.code) for each in link.effects} - {str(wait.code)})
    if also:
        more.append((Piece(f"therefore also: {', '.join(also)}", "dim"),))
    more += [(Piece(text, "dim"),) for text in link.evidence]
    return Branch(_said(wait), tuple(more), tuple(_branch(each, now) for each in link.below))


def _behind(links: list[Link], now: float) -> Iterable[Branch]:
    """One line for each that only waits for what was told above: there may be hundreds."""
    for link in links[:_MOST_BEHIND]:
        yield Branch((*_said(link.wait), Piece(f"  {link.wait.code}{_since(link.wait, now)}", "dim")))
    if len(links) > _MOST_BEHIND:
        yield Branch((Piece(f"and {len(links) - _MOST_BEHIND} more", "dim"),))


def _said(wait: Wait) -> Line:
    colour = "yellow" if wait.actor is Actor.USER else ""
    subject = wait.subject
    kind = f"{_WHOSE.get(subject.group, '')}{subject.kind}" if subject.kind == "Cluster" else subject.kind
    return Piece(f"{kind} "), Piece(subject.name, "bold"), Piece(": "), Piece(wait.evidence or "waits", colour)


def _since(wait: Wait, now: float) -> str:
    return f", for {human_age(wait.since, now)}" if wait.since else ""
