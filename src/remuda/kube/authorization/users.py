"""Who is asking. Authenticators make a :class:`User`; authorizers, admission and audit read it."""

from __future__ import annotations

from dataclasses import dataclass, field

ANONYMOUS = "system:anonymous"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = field(default_factory=dict, hash=False)

    def info(self) -> dict[str, object]:
        """As `UserInfo` in reviews and admission requests."""
        found: dict[str, object] = {"username": self.name}
        if self.uid:
            found["uid"] = self.uid
        if self.groups:
            found["groups"] = list(self.groups)
        if self.extra:
            found["extra"] = self.extra
        return found


# In-process controllers act as this user: they are the server.
SYSTEM = User("system:apiserver", groups=(MASTERS, AUTHENTICATED))
NOBODY = User(ANONYMOUS, groups=(UNAUTHENTICATED,))
