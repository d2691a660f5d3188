"""`remuda get`: objects as they are, or as they were at a revision, a time, or some while ago."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..remote.connection import Remote, remote_options
from ..views.output import JSON, NAME, TABLE, WIDE, YAML, Column, Output, output_option

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient

    from ..remote.resource_kinds import Kind

Obj = dict[str, Any]

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_PAGE = "500"


def check_moment(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    from remuda.apiserver.history.point_in_time import parse

    try:
        if text:
            parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return text


@click.command()
@click.argument("kind", metavar="KIND[/NAME]")
@click.argument("name", default="", required=False)
@click.option("-n", "--namespace", default="", metavar="NAME", help="The namespace.  [default: the kubeconfig's, or default]")
@click.option("-A", "--all-namespaces", is_flag=True, help="Objects of all namespaces.")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="Only objects with these labels, such as app=web.")
@click.option(
    "--at",
    default="",
    metavar="MOMENT",
    callback=check_moment,
    help="The state at a revision, age or time: 4711, 10m, 2026-11-16T12:00:00Z.",
)
@remote_options
@output_option(TABLE, WIDE, YAML, JSON, NAME)
def command(
    kind: str, name: str, namespace: str, all_namespaces: bool, selector: str, at: str, remote: Remote, output: Output
) -> None:
    """Show objects of a kind, as they are or as they were.

    KIND is the plural or singular name, a short name, or either with its group (deployments.apps). --at takes a revision (an
    object's resourceVersion is one), how long ago it was, or a time; what the server can still tell depends on its --history.
    """
    from ..remote.resource_kinds import find, split

    kind, name = split(kind, name)
    if name and all_namespaces:
        raise click.UsageError("-A is only for lists: give the namespace of one object with -n")
    if name and selector:
        raise click.UsageError("-l is only for lists: one object is selected by its name")
    if all_namespaces and namespace:
        raise click.UsageError("-A and -n exclude each other")
    where = "" if all_namespaces else namespace or remote.target.namespace or "default"

    async def ask(client: HttpsClient) -> tuple[Kind, list[Obj]]:
        found = await find(client, kind, at)
        accept = "" if output.structured or output.form == NAME else _TABLE
        return found, await _pages(client, found, where, name, selector, at, accept)

    found, pages = remote.run(ask)
    if output.structured:
        output.value(pages[0] if name else _listed(pages))
    elif output.form == NAME:
        for obj in pages if name else _listed(pages)["items"]:
            output.line(f"{found.reference}/{obj['metadata']['name']}")
    else:
        _show_table(output, pages, with_namespace=all_namespaces and found.namespaced, scope=where if found.namespaced else "")


async def _pages(client: HttpsClient, kind: Kind, namespace: str, name: str, selector: str, at: str, accept: str) -> list[Obj]:
    from ..remote.resource_kinds import past

    path = kind.path(namespace, name)
    query = {"at": at} if at else {}
    if name:
        return [await past(client, path, query, accept) if at else await client.raw("GET", path, accept=accept)]
    query |= {"limit": _PAGE, "labelSelector": selector}
    pages: list[Obj] = []
    while True:
        page = await past(client, path, query, accept) if at else await client.raw("GET", path, query=query, accept=accept)
        pages.append(page)
        query["continue"] = (page.get("metadata") or {}).get("continue") or ""
        if not query["continue"]:
            return pages


def _listed(pages: list[Obj]) -> Obj:
    from remuda.client.responses import named_items

    items = [item for page in pages for item in named_items(page)["items"]]
    version = (pages[0].get("metadata") or {}).get("resourceVersion") or ""
    return {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": version}}


def _show_table(output: Output, pages: list[Obj], *, with_namespace: bool, scope: str) -> None:
    from ..remote.resource_kinds import lines_of

    columns = [
        Column(str(column["name"]).upper(), wide=bool(column.get("priority")))
        for column in pages[0].get("columnDefinitions") or ()
    ]
    rows = [(obj, cells) for page in pages for obj, cells in lines_of(page)]
    if not rows:
        click.echo(f"No resources found in {scope} namespace." if scope else "No resources found.", err=True)
        return
    if with_namespace:
        columns.insert(0, Column("NAMESPACE"))
        rows = [(obj, [str((obj.get("metadata") or {}).get("namespace") or ""), *cells]) for obj, cells in rows]
    output.table(columns, [cells for _, cells in rows])
