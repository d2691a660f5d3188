"""The authors of a cluster's references: a record in an annotation of the cluster that only admission writes. Pure.

An entry is made when a name is written into a field, and stays until it is removed: an edit elsewhere changes no author. Each
has the resourceVersion that it was written upon, so that a rewritten reference is another one. References are digests here: a
cluster may have a thousand of them, and annotations have a limit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Protocol

from remuda.kube.authorization.users import AUTHENTICATED, MASTERS, User
from remuda.kube.encoding import jsonio
from remuda.kube.objects import annotations_of

Obj = dict[str, Any]

AUTHORS: Final = "remuda.dev/reference-authors"
# Set by a user who may read the named objects: from then on these references are theirs. Admission removes it.
ACCEPT: Final = "remuda.dev/accept-references"


class Written(Protocol):
    """An item with an author: a reference, or another item identified by its place and value."""

    @property
    def place(self) -> str: ...

    @property
    def key(self) -> str: ...


@dataclass(frozen=True, slots=True)
class AuthorEntry:
    author: User
    since: str


@dataclass(frozen=True, slots=True)
class AuthorLedger:
    """The entries, by the digest of a reference."""

    entries: Mapping[str, AuthorEntry] = field(default_factory=dict)

    def of(self, references: Iterable[Written]) -> tuple[AuthorEntry, ...]:
        found = (self.entries.get(digest(each)) for each in references)
        return tuple(each for each in found if each is not None)


def digest(reference: Written) -> str:
    # With the length of the first part, since both may contain any characters.
    return _hash(f"{len(reference.place)} {reference.place} {reference.key}")


def seal(entries: Iterable[AuthorEntry]) -> str:
    """Identifies the time and author of a reference's writing; empty if there is no record of it."""
    written = sorted(f"{each.since} {each.author.name}" for each in entries)
    return _hash("\n".join(written)) if written else ""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def holds_everything(user: User) -> bool:
    return MASTERS in user.groups


def known_user(name: str) -> User:
    """A user of whom only the name is still known."""
    return User(name, groups=(AUTHENTICATED,))


def read(obj: Obj | None, annotation: str = AUTHORS) -> AuthorLedger:
    """The annotation's ledger. Only admission writes it, so an unreadable one counts as none."""
    return _parsed(annotations_of(obj or {}).get(annotation) or "")


@lru_cache(maxsize=1024)
def _parsed(text: str) -> AuthorLedger:
    if not text:
        return AuthorLedger()
    try:
        said: Any = jsonio.loads(text)
        users = [User(each["user"], groups=tuple(each["groups"])) for each in said["authors"]]
        return AuthorLedger(
            {
                reference: AuthorEntry(users[written["author"]], written["since"])
                for written in said["written"]
                for reference in written["references"]
            }
        )
    except (jsonio.JsonError, KeyError, TypeError, IndexError):
        return AuthorLedger()


def text_of(ledger: AuthorLedger) -> str:
    """The annotation; empty if there are no entries."""
    if not ledger.entries:
        return ""
    users: list[User] = []
    written: dict[tuple[int, str], list[str]] = {}
    for reference, entry in sorted(ledger.entries.items()):
        if entry.author not in users:
            users.append(entry.author)
        written.setdefault((users.index(entry.author), entry.since), []).append(reference)
    said = {
        "authors": [{"user": each.name, "groups": list(each.groups)} for each in users],
        "written": [
            {"author": author, "since": since, "references": references} for (author, since), references in written.items()
        ],
    }
    return jsonio.dumps_text(said)


def rewritten(
    before: AuthorLedger,
    named: Collection[Written],
    known: Collection[Written],
    author: User,
    since: str,
    accepted: Collection[Written] = (),
) -> AuthorLedger:
    """The record after `author` wrote an object that names `named` instead of `known`, and `accepted` some again."""
    kept = {digest(each) for each in known} - {digest(each) for each in accepted}
    fresh = AuthorEntry(User(author.name, groups=author.groups), since)
    entries: dict[str, AuthorEntry] = {}
    for reference in named:
        key = digest(reference)
        if key not in kept:
            entries[key] = fresh
        elif (entry := before.entries.get(key)) is not None:
            entries[key] = entry
    return AuthorLedger(entries)
