"""The user of a request, and the names of service accounts.

Authenticators make a :class:`User`; authorizers, admission and audit read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .. import names

ANONYMOUS = "system:anonymous"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"
USER_PREFIX = "system:serviceaccount:"
ALL_GROUP = "system:serviceaccounts"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = field(default_factory=dict, hash=False)

    def info(self) -> dict[str, object]:
        """The user as `UserInfo` in reviews and admission requests."""
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
ANONYMOUS_USER = User(ANONYMOUS, groups=(UNAUTHENTICATED,))


def service_account_name(namespace: str, name: str) -> str:
    return f"{USER_PREFIX}{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, ...]:
    return (ALL_GROUP, f"{ALL_GROUP}:{namespace}")


def split_service_account(user: str) -> tuple[str, str] | None:
    """Namespace and name of a ServiceAccount's user name, None for any other name."""
    if not user.startswith(USER_PREFIX):
        return None
    parts = user[len(USER_PREFIX) :].split(":")
    if len(parts) != 2 or names.dns_label_problems(parts[0]) or names.dns_subdomain_problems(parts[1]):
        return None
    return parts[0], parts[1]
