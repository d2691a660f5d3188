"""Writes the pages that are made of the program itself: docs/cluster-fields.md and docs/cli-reference.md (`make docs`).

Fields come from the definition of clusters.provisioning.cattle.io, commands from the command tree; what is to be said of one is
said there, beside it, so that `kubectl explain` and `--help` say it too. A test holds the pages to what this writes now.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any

import click

from remuda import api
from remuda.api import provisioning_cattle_io as provisioning
from remuda.cli.command_tree import cli
from remuda.kube.objects import dig

Obj = dict[str, Any]

DOCS = Path(__file__).parents[1] / "docs"
_WIDTH = 134

# --- fields -------------------------------------------------------------------------------------------------------------------

# Types that every Kubernetes has: their fields are told there.
_KUBERNETES = {
    "appendTolerations": "tolerations of pods",
    "machineLabelSelector": "label selector",
    "overrideAffinity": "affinity of pods",
    "overrideResourceRequirements": "resources of containers",
    "taints": "taints of nodes",
}
_FIELDS = """\
<!-- Made by scripts/reference.py out of the program: change the types, then `make docs`. -->
# Every field of a cluster

The `spec` of a `clusters.provisioning.cattle.io`; `kubectl explain clusters.spec --api-version provisioning.cattle.io/v1` says it
too. How it is used is in [provisioning.md](provisioning.md), [machine-pools.md](machine-pools.md), [upgrades.md](upgrades.md)
and [air-gap.md](air-gap.md); whole clusters are in [examples](../examples). All fields are Rancher's. One that is not set is as
if it were empty, `false` or `0`, unless the table says what it is then. What is wrong is refused when it is written, by name.

Arguments (`machineGlobalConfig`, `machineSelectorConfig[].config`) are the distribution's own, by the names that they have in its
configuration file. What a version does not know is [left out](provisioning.md#versions-and-their-arguments).
"""


def cluster_fields() -> str:
    (crd,) = [each for each in api.crds([provisioning.GROUP]) if dig(each, "spec", "names", "kind") == "Cluster"]
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    # Objects that are alike are told once, where the first of them is.
    tables: dict[str, list[str]] = {}
    for path, table in _tables("spec", spec):
        tables.setdefault(table, []).append(path)
    return _FIELDS + "".join(_section(*paths, table=table) for table, paths in tables.items())


def _section(path: str, *others: str, table: str) -> str:
    alike = f"Also {', '.join(f'`{other}`' for other in others)}.\n\n" if others else ""
    return f"\n## {path}\n\n{alike}{table}"


def _tables(path: str, schema: Obj) -> Iterator[tuple[str, str]]:
    """The fields of an object, then those of the objects in it, each with its path."""
    needed = schema.get("required") or ()
    fields = schema["properties"]
    rows = [f"| `{name}` | {_type(name, each)} | {_meaning(each, name in needed)} |" for name, each in fields.items()]
    rules = [f"- {each['message']}" for each in schema.get("x-kubernetes-validations") or () if each.get("message")]
    yield path, "\n".join(["| field | type | |", "|---|---|---|", *rows, *(["", *rules] if rules else []), ""])
    for name, each in fields.items():
        where, inner = _inner(f"{path}.{name}", each)
        if inner.get("properties") and name not in _KUBERNETES and not _is_reference(inner):
            yield from _tables(where, inner)


def _inner(path: str, schema: Obj) -> tuple[str, Obj]:
    """The object that a field is a list or a map of, or is itself."""
    if schema.get("type") == "array":
        return _inner(f"{path}[]", schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        return _inner(f"{path}.*", schema["additionalProperties"])
    return path, schema


def _is_reference(schema: Obj) -> bool:
    return all(name in schema["properties"] for name in ("apiVersion", "kind", "name", "namespace"))


def _type(name: str, schema: Obj) -> str:
    if name in _KUBERNETES:
        return _KUBERNETES[name]
    if schema.get("x-kubernetes-int-or-string"):
        return "number or text"
    if schema.get("type") == "array":
        return f"list of {_plural(_type('', schema['items']))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map of {_plural(_type('', schema['additionalProperties']))}"
    if schema.get("properties") and _is_reference(schema):
        return "reference"
    words = {"string": "text", "boolean": "true or false", "integer": "number", "object": "object"}
    return words.get(schema.get("type", ""), "anything")


def _plural(word: str) -> str:
    return word if word in ("anything", "true or false", "text") else f"{word}s"


def _meaning(schema: Obj, needed: bool) -> str:
    said = [schema.get("description", "")]
    if needed:
        said.append("**Needed.**")
    if "default" in schema:
        said.append(f"Default `{schema['default']}`.")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        said.append(f"{low} to {high}.")
    elif low is not None:
        said.append(f"At least {low}.")
    for key, unit in (("maxItems", "items"), ("maxLength", "characters")):
        if key in schema:
            said.append(f"At most {schema[key]} {unit}.")
    return _cell(" ".join(filter(None, said)))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# --- commands -----------------------------------------------------------------------------------------------------------------

_COMMANDS = """\
<!-- Made by scripts/reference.py out of the program: change the commands, then `make docs`. -->
# Every command

As `remuda COMMAND --help` says it. What one does with them is in [cli.md](cli.md), and so are the exit codes.

Every option can also be set in the environment, by the names of its command and its own: `REMUDA_CLUSTER_SHOW_NAMESPACE` is
`remuda cluster show --namespace`. Those that are named in the tables work besides. `-h` and `--help` are everywhere.
"""


def commands() -> str:
    context = click.Context(cli, info_name="remuda")
    return _COMMANDS + "".join(_command(name, _found(cli, context, name), context) for name in cli.list_commands(context))


def _command(name: str, command: click.Command, parent: click.Context) -> str:
    context = click.Context(command, info_name=name, parent=parent)
    path = context.command_path
    made = [f"\n{'##' if path.count(' ') == 1 else '###'} {path}\n", _prose(command.help or "")]
    if isinstance(command, click.Group):
        below = [_command(each, _found(command, context, each), context) for each in command.list_commands(context)]
        return "\n".join(made) + "\n" + "".join(below)
    made += ["", "```", _usage(command, context), "```"]
    rows = [_row(each, context) for each in command.params if isinstance(each, click.Option) and not each.hidden]
    if rows:
        made += ["", "| option | |", "|---|---|", *rows]
    return "\n".join([*made, ""])


def _found(group: click.Group, context: click.Context, name: str) -> click.Command:
    found = group.get_command(context, name)
    assert found is not None
    return found


def _usage(command: click.Command, context: click.Context) -> str:
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _row(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None
    names, said = record
    variables = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    said = re.sub(r"\s+\[default: ([^]]*?)(?:; ([^];]*)|\]\s+\[([^]]*))?\]$", _default, said)
    known = f" ({', '.join(f'`{each}`' for each in variables)})" if variables else ""
    return f"| `{_cell(names)}`{known} | {_cell(_plain(said))} |"


def _default(found: re.Match[str]) -> str:
    bounds = re.sub(r"(\d+)<=x<=(\d+)", r"\1 to \2", found[2] or found[3] or "")
    return f" Default: {found[1]}{f'; {bounds}' if bounds else ''}."


def _prose(text: str) -> str:
    """Paragraphs as Markdown; what click is told to leave alone (a line with nothing but \\b) is shown as it is."""
    shown = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        verbatim, _, rest = paragraph.partition("\b\n")
        if rest and not verbatim.strip():
            shown.append(f"```\n{rest.rstrip()}\n```")
        elif all(line.startswith("  ") for line in paragraph.splitlines()):
            shown.append(f"```\n{inspect.cleandoc(paragraph)}\n```")
        else:
            shown.append("\n".join(wrap(_plain(paragraph), _WIDTH, break_long_words=False, break_on_hyphens=False)))
    return "\n\n".join(shown)


def _plain(text: str) -> str:
    """Without what Markdown would take for something else."""
    return re.sub(r"([*_<>])", r"\\\1", text)


PAGES = {"cluster-fields.md": cluster_fields, "cli-reference.md": commands}


def main() -> None:
    for name, made in PAGES.items():
        (DOCS / name).write_text(made())


if __name__ == "__main__":
    main()
