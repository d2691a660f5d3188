"""The path grammar of a Kubernetes API: the target of a method and a path, without a lookup of what exists."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote

import msgspec

from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.users import User
from remuda.kube.errors import bad_request

_METHOD_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = frozenset(("status", "finalize"))
_FALSE = frozenset(("false", "0"))
_MOST_PARAMETERS = 200
PAST = "/history/"


class Query(dict[str, str]):
    """The first value of each parameter, as Kubernetes reads nearly all of them; `all` has all values."""

    __slots__ = ("_more",)

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._more: dict[str, list[str]] = {}
        if text:
            for key, value in _pairs(text):
                if key in self:
                    self._more.setdefault(key, []).append(value)
                else:
                    self[key] = value

    def all(self, name: str) -> list[str]:
        return [self[name], *self._more.get(name, ())] if name in self else []


def _pairs(text: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        raise bad_request(f"the query has more than {_MOST_PARAMETERS} parameters") from None


class Target(msgspec.Struct, gc=False):
    """`resource` is empty for paths that are not about resources (health, discovery); `extra` is what follows a subresource."""

    path: str
    method: str
    verb: str
    query: Query
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    extra: str = ""
    # A request about the past: the path begins with /history, the rest of it is that of the resource.
    past: bool = False
    # The name comes only from a metadata.name field selector: it counts for authorization, not for the path.
    name_from_selector: bool = False

    @property
    def is_resource(self) -> bool:
        return bool(self.resource)


def parse(method: str, raw: str) -> Target:
    path, _, query_text = raw.partition("?")
    query = Query(query_text)
    if "%" in path:
        path = unquote(path, errors="replace")
    target = Target(path, method, method.lower(), query)
    if past := path.startswith(PAST):
        path = path[len(PAST) - 1 :]
    parts = path.strip("/").split("/")
    if len(parts) < 3 or parts[0] not in ("api", "apis") or "//" in path:
        return target
    if parts[0] == "apis":
        if len(parts) < 4:
            return target
        target.group, rest = parts[1], parts[2:]
    else:
        rest = parts[1:]
    target.version, rest = rest[0], rest[1:]
    target.verb = _METHOD_VERBS.get(method, "")
    if rest[0] == "watch" and len(rest) > 1:
        # The old form of a watch, by path.
        target.verb, rest = "watch", rest[1:]
        query.setdefault("watch", "true")
    _split_resource(target, rest)
    target.past = past
    if not target.name:
        _collection_verb(target)
    return target


def _split_resource(target: Target, rest: list[str]) -> None:
    if rest[0] == "namespaces" and len(rest) > 1:
        target.namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    target.resource = rest[0]
    if len(rest) > 1:
        target.name = rest[1]
    if len(rest) > 2:
        target.subresource = rest[2]
        target.extra = "/".join(rest[3:])


def _collection_verb(target: Target) -> None:
    if target.verb == "get":
        watch = target.query.get("watch")
        target.verb = "watch" if watch is not None and watch.lower() not in _FALSE else "list"
    elif target.verb == "delete":
        target.verb = "deletecollection"
    # Permission to delete a collection is never narrowed to one name.
    if target.verb not in ("list", "watch"):
        return
    selector = target.query.get("fieldSelector", "")
    if "metadata.name" in selector:
        target.name = pinned_name(selector)
        target.name_from_selector = bool(target.name)


def pinned_name(selector: str) -> str:
    """The one name that a field selector allows; empty when there is none."""
    for term in selector.split(","):
        field, _, value = term.partition("=")
        if field == "metadata.name":
            value = value.removeprefix("=")
            return value if "/" not in value and "%" not in value and value not in (".", "..") else ""
    return ""


def action_of(target: Target, user: User) -> Action:
    """The action that is to be authorized."""
    if not target.is_resource:
        return Action.on_path(user, target.verb, target.path)
    return Action(
        user=user,
        verb=target.verb,
        group=target.group,
        version=target.version,
        resource=target.resource,
        subresource=target.subresource,
        namespace=target.namespace,
        name=target.name,
        field_selector=target.query.get("fieldSelector", ""),
    )
