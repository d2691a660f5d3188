"""Kinds as kubectl's users name them: `pods`, `pod`, `po`, `deployments.apps`, `clusters.v1.provisioning.cattle.io`, `cm/name`.

What there is comes from the server's discovery. A kind whose definition is gone is looked up in the past.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import click

from ..exit_codes import Code, Failure

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient

Obj = dict[str, Any]

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Kind(NamedTuple):
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    # Everything else that it answers to, in lower case.
    names: frozenset[str]

    @property
    def qualified(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def reference(self) -> str:
        """The name as `kubectl -o name` prints it."""
        return f"{self.kind.lower()}.{self.group}" if self.group else self.kind.lower()

    def path(self, namespace: str, name: str = "") -> str:
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        where = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        return f"{base}{where}/{self.plural}" + (f"/{quote(name, safe='')}" if name else "")


def split(kind: str, name: str) -> tuple[str, str]:
    """KIND and NAME, also of `KIND/NAME`."""
    before, slash, after = kind.partition("/")
    if not slash:
        return kind, name
    if name or not before or not after or "/" in after:
        raise click.UsageError(f"{kind!r} with {name!r} names no object: give KIND, KIND NAME or KIND/NAME")
    return before, after


async def find(client: HttpsClient, text: str, at: str = "", *, ever: bool = False) -> Kind:
    """The kind that is meant; with `at` also one that was there then, with `ever` one that was there once."""
    found = matching(await served(client), text)
    if not found and at:
        found = matching([kind async for kind in _defined_then(client, at)], text)
    elif not found and ever:
        found = matching(await _defined_once(client, text.lower()), text)
    if not found:
        more = " (of one whose definition is gone, give PLURAL.GROUP)" if ever else ""
        raise Failure(f"the server has no kind {text!r}{more}", Code.NOT_FOUND)
    if others := [kind.qualified for kind in found[1:] if kind.qualified != found[0].qualified]:
        click.echo(f"({found[0].qualified} is taken; there is also {', '.join(dict.fromkeys(others))})", err=True)
    return found[0]


def matching(kinds: Iterable[Kind], text: str) -> list[Kind]:
    """Those that answer to `text`, in the server's order: a plain name, NAME.GROUP, or NAME.VERSION.GROUP."""
    known = list(kinds)
    name, dot, rest = text.lower().partition(".")
    named = [kind for kind in known if name == kind.plural or name in kind.names]
    if not dot:
        return named
    by_group = [kind for kind in named if kind.group == rest or (rest and kind.group.startswith(f"{rest}."))]
    version, _, group = rest.partition(".")
    return by_group or [kind for kind in named if (kind.version, kind.group) == (version, group)]


async def served(client: HttpsClient, before: str = "") -> list[Kind]:
    """The readable resources, each in the version that the server prefers and then in others. `before` is the path to another
    server through this one."""
    found: list[Kind] = []
    for path in ("/api", "/apis"):
        document = await client.raw("GET", f"{before}{path}", accept=_AGGREGATED)
        for group in document.get("items") or ():
            name = (group.get("metadata") or {}).get("name") or ""
            for version in group.get("versions") or ():
                found += [_of_discovery(name, version["version"], each) for each in version.get("resources") or () if _read(each)]
    return found


def _read(resource: Obj) -> bool:
    return {"get", "list"} <= set(resource.get("verbs") or ())


def _of_discovery(group: str, version: str, resource: Obj) -> Kind:
    kind = (resource.get("responseKind") or {}).get("kind") or ""
    names = [resource.get("singularResource") or "", kind, *(resource.get("shortNames") or ())]
    return Kind(group, version, resource["resource"], kind, resource.get("scope") == "Namespaced", _lower(names))


def _lower(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names if name)


def of_definition(definition: Obj) -> Kind:
    spec = definition["spec"]
    names = spec["names"]
    version = next(each["name"] for each in spec["versions"] if each.get("storage"))
    called = [names.get("singular") or "", names["kind"], *(names.get("shortNames") or ())]
    return Kind(spec["group"], version, names["plural"], names["kind"], spec["scope"] == "Namespaced", _lower(called))


async def _defined_then(client: HttpsClient, at: str) -> AsyncIterator[Kind]:
    query = {"at": at, "limit": "500"}
    while True:
        page = await past(client, CRDS, query)
        for definition in page.get("items") or ():
            yield of_definition(definition)
        query["continue"] = (page.get("metadata") or {}).get("continue") or ""
        if not query["continue"]:
            return


async def _defined_once(client: HttpsClient, name: str) -> list[Kind]:
    from remuda.kube.errors import ApiError

    if "." not in name:
        return []
    try:
        life = await past(client, f"{CRDS}/{quote(name, safe='')}", {"objects": "true", "limit": "2"})
    except ApiError as error:
        if error.is_not_found:
            return []
        raise
    return [of_definition(item["object"]) for item in life["items"] if "object" in item][:1]


async def past(client: HttpsClient, path: str, query: dict[str, str], accept: str = "") -> Obj:
    """A server's answer about the past. Raises Failure if it keeps no history."""
    from remuda.kube.errors import ApiError

    try:
        found: Obj = await client.raw("GET", f"/history{path}", query=query, accept=accept)
    except ApiError as error:
        unknown = error.code == 404 and not (error.details or {}).get("kind")
        if unknown or (error.code == 403 and "cannot get path" in error.message):
            raise Failure(
                f"{client.target.server} keeps no history: it is not a Remuda server, or does not have this path"
            ) from None
        raise
    return found


def lines_of(table: Obj) -> Iterator[tuple[Obj, list[str]]]:
    """The rows of a Table: the object of each, and its cells as text."""
    for row in table.get("rows") or ():
        cells = ["" if cell is None else str(cell) for cell in row.get("cells") or ()]
        yield row.get("object") or {}, [shown(cell) for cell in cells]


def shown(text: str) -> str:
    """One line that does nothing to a terminal: what others wrote may be anything."""
    first, more, _ = text.partition("\n")
    if not first.isprintable():
        first = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in first)
    return f"{first}..." if more else first
