"""Adding a kubeconfig to what a person has: nothing of theirs is lost, and what changes is told.

The file is changed under kubectl's own lock and replaced in one step; what it was before is kept beside it, by a name that is
printed. A name that means something else there already is a conflict, unless one says `--force`.
"""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..exit_codes import Code, Failure
from .connection import WORKSPACE, Remote

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient


Obj = dict[str, Any]


def write_new(path: Path, content: str, *, force: bool) -> None:
    """A file for its owner only; one that is there stays, unless it is to be replaced."""
    from remuda.kube.private_files import write_private

    target = path.expanduser().resolve()
    if target.exists() and not force:
        raise Failure(f"{path} exists: choose another file, --force to replace it, or --merge to add to it", Code.CONFLICT)
    write_private(target, content.encode())


def merge(content: str, into: Path | None, name: str, *, use: bool, force: bool) -> None:
    from remuda.client.kubeconfig import default_paths
    from remuda.kube.encoding import yamlio

    # A link stays a link: what it points to is replaced.
    path = (into or default_paths()[0]).expanduser().resolve()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    ours = yamlio.loads(content)
    ours = renamed(ours, name) if name else ours
    names = [str(entry["name"]) for entry in ours["contexts"]]
    told = f"context {shown(names[0])}" if len(names) == 1 else f"{len(names)} contexts"
    with _locked(path):
        try:
            before = path.read_text() if path.exists() else ""
            theirs = yamlio.loads(before) if before else {}
        except (yamlio.YamlError, UnicodeDecodeError) as error:
            raise Failure(f"{path} is not YAML, so nothing was changed: {error}") from None
        if not isinstance(theirs, dict | None):
            raise Failure(f"{path} is not a kubeconfig, so nothing was changed")
        after = yamlio.dumps(merged(theirs or {}, ours, path, use=use, force=force))
        if after == before:
            click.echo(f"{path} already has it as {told}")
            return
        backup = _replace(path, before, after)
    click.echo(f"added to {path} as {told}" + (f"; the old file is {backup}" if backup else ""))
    click.echo(f"Try:  kubectl --context {shown(names[0])} get namespaces")


def shown(name: str) -> str:
    """A name for a terminal, from which people copy it into a shell. Names of clusters are untrusted."""
    if name.isprintable():
        return shlex.quote(name)
    # Bash's and zsh's own way to write what can't be seen; nothing of it reaches the terminal as it is.
    return "$'" + "".join(_escaped(char) for char in name) + "'"


def _escaped(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08x}"


def renamed(config: Obj, name: str) -> Obj:
    """A kubeconfig of one cluster under another name. Its user gets a name of its own: theirs may have an admin, too."""
    user = f"{name}-admin"
    return {
        **config,
        "clusters": [{"name": name, "cluster": config["clusters"][0]["cluster"]}],
        "users": [{"name": user, "user": config["users"][0]["user"]}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }


def merged(theirs: Obj, ours: Obj, path: Path, *, use: bool, force: bool) -> Obj:
    """`theirs` with everything of ours. What has the same name and the same server is ours from before, and is renewed."""
    _check_shape(theirs, path)
    if not force and (problem := conflict(theirs, ours)):
        raise Failure(f"{path} already has {problem}: choose another name with --name, or replace it with --force", Code.CONFLICT)
    result = {"apiVersion": "v1", "kind": "Config", **theirs}
    for kind in ("clusters", "users"):
        entries = theirs.get(kind)
        for entry in ours[kind]:
            entries = _with(entries, entry)
        result[kind] = entries
    contexts = theirs.get("contexts")
    for entry in ours["contexts"]:
        # A namespace that was chosen there stays chosen.
        before = (_named(contexts, entry["name"]) or {}).get("context") or {}
        contexts = _with(contexts, {"name": entry["name"], "context": {**before, **entry["context"]}})
    result["contexts"] = contexts
    if use or not theirs.get("current-context"):
        result["current-context"] = ours["current-context"]
    return result


def _check_shape(theirs: Obj, path: Path) -> None:
    for kind in ("clusters", "users", "contexts"):
        entries = theirs.get(kind) or []
        if not isinstance(entries, list) or not all(_is_named(entry, kind[:-1]) for entry in entries):
            raise Failure(f"{path} is not a kubeconfig ({kind} is no list of names), so nothing was changed")


def _is_named(entry: Any, member: str) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("name", ""), str) or not isinstance(entry.get(member) or {}, dict):
        return False
    names = ("cluster", "user") if member == "context" else ()
    return all(isinstance((entry.get(member) or {}).get(each, ""), str) for each in names)


def conflict(theirs: Obj, ours: Obj) -> str:
    """The entry of the user's file that would be replaced by another one; "" when there is none."""
    servers = {entry["name"]: entry["cluster"]["server"] for entry in ours["clusters"]}
    for name, server in servers.items():
        present = _named(theirs.get("clusters"), name)
        if present is not None and (present.get("cluster") or {}).get("server") != server:
            return f"a cluster {name} at {(present.get('cluster') or {}).get('server')}"
    pairs = {(entry["context"]["cluster"], entry["context"]["user"]) for entry in ours["contexts"]}
    contexts = {entry["name"]: entry["context"] for entry in ours["contexts"]}
    users = {entry["name"] for entry in ours["users"]}
    for entry in theirs.get("contexts") or []:
        name, context = entry.get("name"), entry.get("context") or {}
        if name in contexts and context.get("cluster") != contexts[name]["cluster"]:
            return f"a context {name} for another cluster"
        # A user of another server must not be replaced by one of the same name.
        if context.get("user") in users and (context.get("cluster"), context.get("user")) not in pairs:
            cluster = _named(theirs.get("clusters"), str(context.get("cluster"))) or {}
            if not _same_origin(str((cluster.get("cluster") or {}).get("server") or ""), servers.values()):
                return f"a user {context.get('user')} for another cluster"
    return ""


def _same_origin(server: str, ours: Any) -> bool:
    """True if a server is a gateway that we write entries for, too: the same host, another cluster behind it."""
    from urllib.parse import urlsplit

    return any(urlsplit(server)[:2] == urlsplit(other)[:2] for other in ours)


def _named(entries: list[Obj] | None, name: str) -> Obj | None:
    return next((entry for entry in entries or [] if entry.get("name") == name), None)


def _with(entries: list[Obj] | None, entry: Obj) -> list[Obj]:
    kept = [other for other in entries or [] if other.get("name") != entry["name"]]
    return [*kept, entry]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The lock kubectl itself takes before it changes the file."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise Failure(f"{path} is being changed by another program; if not, remove {lock}", Code.CONFLICT) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _replace(path: Path, before: str, after: str) -> Path | None:
    from remuda.kube.clock import SYSTEM_CLOCK, rfc3339
    from remuda.kube.private_files import write_private

    backup: Path | None = None
    if before:
        stamp = rfc3339(SYSTEM_CLOCK.time()).replace(":", "")
        # Two in one second are two.
        named = (path.with_name(f"{path.name}.{stamp}{f'.{number}' if number else ''}") for number in count())
        backup = next(candidate for candidate in named if not candidate.exists())
        write_private(backup, before.encode())
    write_private(path, after.encode())
    return backup


# --- cluster kubeconfigs --------------------------------------------------------------------------------------------------
#
# Kubeconfigs of clusters for the administrator of the server's own machine, who needs no login (see
# :mod:`..commands.kubeconfig`).
#
# They are those that controllers and `clusterctl get kubeconfig` use: a Secret beside each cluster. Each comes with the
# cluster's name for a context.


def of_clusters(administrator: Path, clusters: tuple[str, ...]) -> str:
    """One kubeconfig with a context for each of them; the first is the current one."""
    from remuda.client.kubeconfig import load, select
    from remuda.kube.encoding import yamlio

    async def read(client: HttpsClient) -> list[Obj]:
        return [await _read(client, name) for name in clusters]

    together: Obj = {}
    for config in Remote(select(load([administrator]))).run(read):
        together = merged(together, config, administrator, use=False, force=True)
    return yamlio.dumps(together)


async def _read(client: HttpsClient, name: str) -> Obj:
    from remuda.kube.encoding import yamlio
    from remuda.kube.objects import GroupVersionResource, Key, dig

    from . import clusters as looking

    found = await looking.find(client, WORKSPACE, name)
    key = Key.of(found)
    secret = dig(found, "status", "clientSecretName")
    if not secret:
        raise Failure(
            f"cluster {key.name} has no kubeconfig yet: remuda explain {key.name} says what it waits for", Code.NOT_FOUND
        )
    kept = await client.get(GroupVersionResource("", "v1", "secrets"), secret, key.namespace)
    value = base64.b64decode(dig(kept, "data", "value") or "")
    return renamed(yamlio.loads(value.decode()), key.name)
