"""Impersonation of other users, by Impersonate-* headers.

Two grants allow it. The old one is the verb `impersonate` on users, groups, serviceaccounts, uids and userextras. The
constrained ones (KEP 5284) need two rules: `impersonate:<mode>` on the identity, and `impersonate-on:<mode>:<verb>` on
the request itself. A request tries the constrained modes first; the client gets the error of the first mode that
applied, as from kube-apiserver.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from remuda.kube import names
from remuda.kube.authorization.actions import Action, Authorizer, forbidden_action
from remuda.kube.authorization.users import ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User, split_service_account
from remuda.kube.authorization.users import service_account_groups as service_account_groups
from remuda.kube.errors import ApiError, FieldError, aggregate_text, bad_request, go_quote, invalid_value

_GROUP = "authentication.k8s.io"
_EXTRA_PREFIX = "impersonate-extra-"
_HEADERS = ("impersonate-user", "impersonate-group", "impersonate-uid")
_NODE_PREFIX = "system:node:"
_NODES_GROUP = "system:nodes"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
# From this many groups or extras on, one check for all of them ("*") is tried first.
_MANY = 4
_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class ImpersonationRequest:
    """The identity in the headers, as it was sent."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def only_name(self) -> bool:
        return not self.uid and not self.groups and not self.extra


def parse(headers: Iterable[tuple[str, str]]) -> ImpersonationRequest | None:
    """The identity to impersonate; None without such headers. Raises ApiError (400) for headers without a user."""
    name = uid = ""
    seen_name = seen_uid = seen_extra = False
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for header, value in headers:
        # Most requests do not impersonate: one cheap comparison per header.
        if header[:11] not in ("Impersonate", "impersonate") and header[:11].lower() != "impersonate":
            continue
        lower = header.lower()
        if lower == "impersonate-user" and not seen_name:
            name, seen_name = _checked(value), True
        elif lower == "impersonate-uid" and not seen_uid:
            uid, seen_uid = _checked(value), True
        elif lower == "impersonate-group":
            groups.append(_checked(value))
        elif lower.startswith(_EXTRA_PREFIX):
            seen_extra = True
            extra.setdefault(_unescape(lower[len(_EXTRA_PREFIX) :]), []).append(_checked(value))
    if name:
        return ImpersonationRequest(name, uid, tuple(groups), {key: tuple(values) for key, values in extra.items()})
    if uid or groups or seen_extra:
        raise bad_request(f"requested {_go_syntax(uid, groups, extra)} without impersonating a user name")
    return None


def _checked(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise bad_request("impersonation headers must be valid UTF-8") from None
    return value


def _unescape(key: str) -> str:
    """A %-encoded key, decoded; unchanged when the encoding is invalid."""
    if "%" not in key or _BAD_ESCAPE.search(key):
        return _checked(key)
    try:
        return unquote(key, errors="strict")
    except UnicodeDecodeError:
        return key


def _go_syntax(uid: str, groups: list[str], extra: dict[str, list[str]]) -> str:
    def strings(values: list[str]) -> str:
        return "[]string{" + ", ".join(go_quote(value) for value in values) + "}" if values else "[]string(nil)"

    if extra:
        pairs = ", ".join(f"{go_quote(key)}:{strings(extra[key])}" for key in sorted(extra))
        shown = f"map[string][]string{{{pairs}}}"
    else:
        shown = "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:{go_quote(uid)}, Groups:{strings(groups)}, Extra:{shown}}}'


def node_of(user_name: str) -> str:
    """The node of a node's user name, "" for other users."""
    if not user_name.startswith(_NODE_PREFIX):
        return ""
    node = user_name[len(_NODE_PREFIX) :]
    return "" if names.dns_subdomain_problems(node) else node


Applies = Callable[[ImpersonationRequest, User], bool]


def _is_own_node(wanted: ImpersonationRequest, asker: User) -> bool:
    node = node_of(wanted.name)
    return (
        bool(node)
        and wanted.only_name
        and split_service_account(asker.name) is not None
        and asker.extra.get(_NODE_NAME) == [node]
    )


def _is_node(wanted: ImpersonationRequest, asker: User) -> bool:
    return wanted.only_name and node_of(wanted.name) != ""


def _is_service_account(wanted: ImpersonationRequest, asker: User) -> bool:
    return wanted.only_name and split_service_account(wanted.name) is not None


def _is_other_user(wanted: ImpersonationRequest, asker: User) -> bool:
    return node_of(wanted.name) == "" and split_service_account(wanted.name) is None


_MODES: tuple[tuple[str, Applies], ...] = (
    ("associated-node", _is_own_node),
    ("arbitrary-node", _is_node),
    ("serviceaccount", _is_service_account),
    ("user-info", _is_other_user),
    ("", lambda wanted, asker: True),
)


class Impersonator:
    """Replaces the user of a request with the user that it may impersonate."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        # The mode that last worked for a user is tried first, for speed; it also decides which error is shown.
        self._last_mode: OrderedDict[str, int] = OrderedDict()

    def impersonate(self, wanted: ImpersonationRequest, action: Action) -> User:
        """The impersonated user; `action` is the request of the original user. Raises ApiError (403)."""
        last = self._last_mode.get(action.user.name)
        order = range(len(_MODES)) if last is None else (last, *(index for index in range(len(_MODES)) if index != last))
        refusal: ApiError | None = None
        for index in order:
            mode, applies = _MODES[index]
            if not applies(wanted, action.user):
                continue
            try:
                user = self._try(mode, wanted, action)
            except ApiError as error:
                refusal = refusal or error
                continue
            self._last_mode[action.user.name] = index
            if len(self._last_mode) > _REMEMBERED:
                self._last_mode.popitem(last=False)
            return user
        assert refusal is not None
        raise refusal

    def _try(self, mode: str, wanted: ImpersonationRequest, action: Action) -> User:
        asker = action.user
        if mode == "associated-node":
            # The grant is for any node that the asker runs on, so it must not depend on values that differ between nodes.
            asker = replace(asker, extra={"authentication.kubernetes.io/associated-node-keys": sorted(asker.extra)})
        if mode:
            self._allow(action.but(user=asker, verb=f"impersonate-on:{mode}:{action.verb}"))
        check = _Check(self, asker, mode)
        groups = check.name(wanted)
        if wanted.uid:
            check.one(_GROUP, "uids", wanted.uid)
        check.groups(wanted.groups)
        check.extra(wanted.extra)
        user = User(wanted.name, wanted.uid, groups, {key: list(values) for key, values in wanted.extra.items()})
        return _with_default_group(user)

    def _allow(self, action: Action) -> None:
        decision = self._authorizer.authorize(action)
        if not decision.allowed:
            raise forbidden_action(action, decision.reason)


def _with_default_group(user: User) -> User:
    if user.name == ANONYMOUS:
        wanted = UNAUTHENTICATED
    elif UNAUTHENTICATED in user.groups:
        return user
    else:
        wanted = AUTHENTICATED
    return user if wanted in user.groups else replace(user, groups=(*user.groups, wanted))


class _Check:
    """The grants that one mode requires for each part of the wanted identity."""

    def __init__(self, impersonator: Impersonator, asker: User, mode: str) -> None:
        self._impersonator = impersonator
        self._asker = asker
        self._mode = mode
        self._verb = f"impersonate:{mode}" if mode else "impersonate"
        self._name_group = _GROUP if mode else ""

    def _action(self, group: str, resource: str, name: str, namespace: str = "", subresource: str = "") -> Action:
        version = "v1"
        return Action(self._asker, self._verb, group, version, resource, subresource, namespace, name)

    def one(self, group: str, resource: str, name: str, namespace: str = "", subresource: str = "") -> None:
        self._impersonator._allow(self._action(group, resource, name, namespace, subresource))

    def name(self, wanted: ImpersonationRequest) -> tuple[str, ...]:
        """The groups that belong to the name, when it may be impersonated."""
        node = node_of(wanted.name) if self._mode else ""
        if node:
            self.one(self._name_group, "nodes", "*" if self._mode == "associated-node" else node)
            return (_NODES_GROUP,)
        account = split_service_account(wanted.name)
        if account is not None:
            self.one(self._name_group, "serviceaccounts", account[1], account[0])
            return wanted.groups or service_account_groups(account[0])
        self.one(self._name_group, "users", wanted.name)
        return wanted.groups

    def groups(self, groups: tuple[str, ...]) -> None:
        if self._mode:
            if "" in groups:
                self._refuse("groups", "", "impersonating the empty string group is not allowed")
            if MASTERS in groups:
                self._refuse("groups", MASTERS, "impersonating the system:masters group is not allowed")
            if len(groups) >= _MANY and self._all("groups", ""):
                return
        for group in groups:
            self.one(self._name_group, "groups", group)

    def extra(self, extra: Mapping[str, tuple[str, ...]]) -> None:
        if self._mode:
            if problem := next(filter(None, (_extra_problem(key, values) for key, values in extra.items())), ""):
                self._refuse("userextras", "", problem)
            if sum(map(len, extra.values())) >= _MANY and self._all("userextras", "*"):
                return
        for key, values in extra.items():
            for value in values:
                self.one(_GROUP, "userextras", value, subresource=key)

    def _all(self, resource: str, subresource: str) -> bool:
        action = self._action(_GROUP, resource, "*", subresource=subresource)
        return self._impersonator._authorizer.authorize(action).allowed

    def _refuse(self, resource: str, name: str, why: str) -> None:
        raise forbidden_action(self._action(_GROUP, resource, name), why)


def _key_problems(key: str) -> list[FieldError]:
    domain, _, path = key.partition("/")
    if not domain or not path:
        return [invalid_value("extra.key", key, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    problems = [invalid_value("extra.key", domain, why) for why in names.dns_subdomain_problems(domain)]
    if not _PATH.fullmatch(path):
        problems.append(invalid_value("extra.key", path, f"Invalid path (regex used for validation is '{_PATH.pattern}')"))
    return problems


def _extra_problem(key: str, values: tuple[str, ...]) -> str:
    if not key:
        return "impersonating the empty string key in extra is not allowed"
    problems = _key_problems(key)
    if problems:
        shown = aggregate_text([str(problem) for problem in problems])
        return f"impersonating an invalid key in extra is not allowed: {shown}"
    if key != key.lower():
        return f"impersonating a non-lowercase key in extra is not allowed: {go_quote(key)}"
    if "" in values:
        return "impersonating the empty string value in extra is not allowed"
    return ""
