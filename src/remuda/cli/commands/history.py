"""`remuda history`: what happened to an object, when, and by whom; and what each step changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ..remote.connection import Remote, remote_options
from ..views.output import JSON, TABLE, YAML, Column, Output, output_option

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient

    from ..remote.resource_kinds import Kind

Obj = dict[str, Any]

_COLUMNS = (Column("REVISION"), Column("TIME"), Column("CHANGE"), Column("GENERATION"), Column("BY"), Column("FIELDS"))
# Of one request; with the objects themselves a page is smaller.
_PAGE, _OBJECTS = 500, 50
_SHOWN_FIELDS = 3


@click.command()
@click.argument("kind", metavar="KIND[/NAME]")
@click.argument("name", default="", required=False)
@click.option("-n", "--namespace", default="", metavar="NAME", help="The namespace.  [default: the kubeconfig's, or default]")
@click.option("--diff", is_flag=True, help="Show what each step changed, as YAML.")
@click.option(
    "--limit",
    metavar="COUNT",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="The number of steps, the newest first.",
)
@click.option("--before", type=click.IntRange(1), metavar="REVISION", help="Only steps from before this revision.")
@remote_options
@output_option(TABLE, JSON, YAML)
def command(
    kind: str, name: str, namespace: str, diff: bool, limit: int, before: int | None, remote: Remote, output: Output
) -> None:
    """Show what happened to an object: when, what, and by whom.

    The newest step is the first. BY is the user who asked for it, with the field manager in brackets; for what the server did by
    itself the field manager alone. An object that was deleted and made again has both in one history.
    """
    from ..remote.resource_kinds import find, shown, split

    kind, name = split(kind, name)
    if not name:
        raise click.UsageError("name the object: KIND NAME, or KIND/NAME")

    async def ask(client: HttpsClient) -> tuple[Kind, list[Obj], bool]:
        found = await find(client, kind, ever=True)
        path = found.path(namespace or remote.target.namespace or "default", name)
        return found, *await _steps(client, path, limit, before or 0, diff)

    found, steps, more = remote.run(ask)
    if output.structured:
        output.value({"kind": "ObjectHistory", "of": f"{found.qualified}/{name}", "items": [_told(step) for step in steps]})
    elif diff:
        for step in steps:
            for line in _with_diff(step):
                output.line(_painted(shown(line), output))
    else:
        output.table(_COLUMNS, [[shown(cell) for cell in _row(step)] for step in steps])
    if more and steps:
        click.echo(f"(there is more: --before {steps[-1]['revision']})", err=True)


async def _steps(client: HttpsClient, path: str, limit: int, before: int, diff: bool) -> tuple[list[Obj], bool]:
    """The steps, and whether there are older ones. With `diff` each has its own `diff`, and no object any more."""
    from ..remote.resource_kinds import past

    steps: list[Obj] = []
    waiting: Obj | None = None
    while True:
        wanted = limit - len(steps) + (1 if diff else 0)
        query = {"limit": str(min(wanted, _OBJECTS if diff else _PAGE)), "before": str(before) if before else ""}
        page = await past(client, path, query | ({"objects": "true"} if diff else {}))
        for item in page["items"]:
            if diff:
                # A step can be told once the one before it is here.
                if waiting is not None:
                    steps.append(_compared(waiting, item))
                waiting = item
            else:
                steps.append(item)
            if len(steps) == limit:
                return steps, True if diff else bool(page["metadata"].get("continue"))
        before = int(page["metadata"].get("continue") or 0)
        if not before:
            if waiting is not None:
                steps.append(_compared(waiting, None))
            return steps, False


def _compared(step: Obj, older: Obj | None) -> Obj:
    """The step with its difference to the one before it in place of the object."""
    told = {key: value for key, value in step.items() if key != "object"}
    if step.get("unreadable") or (older is None and step["change"] != "created") or (older or {}).get("unreadable"):
        return told | {"diff": None}
    before = "" if older is None or step["change"] == "created" else _text(older.get("object"))
    return told | {"diff": "\n".join(_unified(before, _text(step.get("object"))))}


def _unified(before: str, after: str) -> Iterator[str]:
    from difflib import unified_diff

    for number, line in enumerate(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)):
        # The names of the two files, which there are none of.
        if number > 1:
            yield line


def _text(obj: Obj | None) -> str:
    from remuda.kube.encoding import yamlio

    if obj is None:
        return ""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in ("managedFields", "resourceVersion")}
    return yamlio.dumps({**obj, "metadata": metadata})


def _told(step: Obj) -> Obj:
    return {key: value for key, value in step.items() if key != "object"}


def _by(step: Obj) -> str:
    user, managers = step.get("user") or "", ", ".join(step.get("managers") or ())
    if user and managers:
        return f"{user} ({managers})"
    return user or managers or "-"


def _time(step: Obj) -> str:
    return str(step["time"]).partition(".")[0].removesuffix("Z") + "Z"


def _row(step: Obj) -> list[str]:
    generation = step.get("generation")
    return [
        str(step["revision"]),
        _time(step),
        step["change"],
        "" if generation is None else str(generation),
        _by(step),
        _fields(step),
    ]


def _fields(step: Obj) -> str:
    if step.get("unreadable"):
        return "(encrypted with a key that no longer exists)"
    if step["change"] != "changed":
        return ""
    if step.get("fields") is None:
        return "(the state before is not kept)"
    named = step["fields"][:_SHOWN_FIELDS]
    more = len(step["fields"]) - len(named) + int(step.get("moreFields") or 0)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _with_diff(step: Obj) -> Iterator[str]:
    yield f"revision {step['revision']}  {_time(step)}  {step['change']}  by {_by(step)}"
    text = step.get("diff")
    yield from ["(this state, or the state before, is not kept)"] if text is None else text.splitlines()
    yield ""


def _painted(line: str, output: Output) -> str:
    colour = {"+": "green", "-": "red", "@": "dim"}.get(line[:1])
    if line.startswith("revision "):
        colour = "bold"
    return output.paint(line, colour) if colour else line
