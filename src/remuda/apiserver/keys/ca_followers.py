"""Clients that must trust the server's CA: before an old CA is dropped, each must trust the new one.

This package knows nothing of hosts and clusters. Packages above report clients through :data:`Followers`; this module judges them
for a rotation. Pure. Clients that the server can't know, such as users with kubeconfigs, are not included.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

import msgspec

NO_REPORT = "does not report which CA it trusts"
ONLY_OLD = "trusts only the old CA"
OTHER = "trusts another CA"


class Follower(msgspec.Struct, frozen=True, kw_only=True):
    """`trusts` are the fingerprints of the CAs that it trusts, as it reports; None when it reports nothing (`why`), empty when it
    checks the server's certificate without our CA. `silent_since` (RFC 3339) is empty for a connected one."""

    kind: str
    name: str
    cluster: str = ""
    trusts: tuple[str, ...] | None = None
    why: str = NO_REPORT
    silent_since: str = ""


class UnpreparedClient(msgspec.Struct, frozen=True):
    """A client that would lose access with the old CA."""

    kind: str
    name: str
    cluster: str
    reason: str
    silent_since: str = ""

    @property
    def words(self) -> str:
        of = f" of {self.cluster}" if self.cluster and self.cluster != self.name else ""
        silent = f", silent since {self.silent_since}" if self.silent_since else ""
        return f"{self.kind} {self.name}{of} {self.reason}{silent}"

    def told(self) -> dict[str, str]:
        found = {"kind": self.kind, "name": self.name, "cluster": self.cluster, "reason": self.reason, "message": self.words}
        return {**found, "silentSince": self.silent_since} if self.silent_since else found


class TrustReport(msgspec.Struct, frozen=True):
    """The number of clients, and those that don't trust the new CA yet."""

    total: int
    behind: tuple[UnpreparedClient, ...]


# Lists all clients of one kind, as they are now.
Followers = Callable[[], Awaitable[Sequence[Follower]]]


def judged(found: Iterable[Follower], new: str, old: Collection[str]) -> TrustReport:
    """The clients that trust the CA with the fingerprint `new`. One that reports nothing counts as not trusting."""
    all_found = sorted(found, key=lambda each: (each.kind, each.cluster, each.name))
    behind = [
        UnpreparedClient(each.kind, each.name, each.cluster, reason, each.silent_since)
        for each in all_found
        if (reason := why_behind(each, new, old))
    ]
    return TrustReport(len(all_found), tuple(behind))


def why_behind(follower: Follower, new: str, old: Collection[str]) -> str:
    """The reason why a client would lose access without the old CA; empty when it would not."""
    if follower.trusts is None:
        return follower.why
    if not follower.trusts or new in follower.trusts:
        return ""
    return ONLY_OLD if set(follower.trusts) & set(old) else OTHER
