"""`remuda kubeconfig`: the administrator's kubeconfig of a data directory, printed or merged into the user's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from .exits import Code, Failure
from .places import data_dir_option

Obj = dict[str, Any]


@click.command()
@data_dir_option
@click.option("--path", "path_only", is_flag=True, help="Print where it is instead of what it says.")
@click.option("--merge", is_flag=True, help="Add it to your kubeconfig; the old file is kept beside it.")
@click.option("--into", type=click.Path(dir_okay=False, path_type=Path), help="With --merge: the file to add it to.")
@click.option("--name", default="remuda", show_default=True, help="With --merge: the name of cluster and context there.")
@click.option("--use", is_flag=True, help="With --merge: make it the current context.")
@click.option("--force", is_flag=True, help="With --merge: replace another cluster of that name.")
def command(data_dir: Path, path_only: bool, merge: bool, into: Path | None, name: str, use: bool, force: bool) -> None:
    """Print or merge the administrator's kubeconfig.

    Without --into, --merge adds to the first file of $KUBECONFIG, else to ~/.kube/config.
    """
    if not merge and (into is not None or use or force):
        raise click.UsageError("--into, --use and --force go with --merge")
    own = data_dir.absolute() / "kubeconfig"
    content = _own(own)
    if merge:
        _merge(content, into, name, use=use, force=force)
        return
    click.echo(str(own) if path_only else content, nl=path_only)


def _own(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        message = f"there is no kubeconfig in {path.parent}: start a server there first, with remuda serve"
        raise Failure(message, Code.NOT_FOUND) from None
    except PermissionError:
        raise Failure(f"{path} is not yours to read: ask as the user that runs the server", Code.NOT_ALLOWED) from None


def _merge(content: str, into: Path | None, name: str, *, use: bool, force: bool) -> None:
    from remuda.client.kubeconfig import default_paths
    from remuda.kube import yamlio

    # A link stays a link: what it points to is replaced.
    path = (into or default_paths()[0]).expanduser().resolve()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(path):
        before = path.read_text() if path.exists() else ""
        try:
            theirs = yamlio.loads(before) if before else {}
        except yamlio.YamlError as error:
            raise Failure(f"{path} is not YAML, so nothing was changed: {error}") from None
        if not isinstance(theirs, dict | None):
            raise Failure(f"{path} is not a kubeconfig, so nothing was changed")
        after = yamlio.dumps(merged(theirs or {}, yamlio.loads(content), name, path, use=use, force=force))
        if after == before:
            click.echo(f"{path} already has it as context {name}")
            return
        backup = _replace(path, before, after)
    click.echo(f"added to {path} as context {name}" + (f"; the old file is {backup}" if backup else ""))
    click.echo(f"Try:  kubectl --context {name} get namespaces")


def merged(theirs: Obj, ours: Obj, name: str, path: Path, *, use: bool, force: bool) -> Obj:
    """`theirs` with our cluster, user and context. Our user gets a name of its own: theirs may have an admin, too."""
    cluster, user_name = ours["clusters"][0]["cluster"], f"{name}-admin"
    present = _named(theirs.get("clusters"), name)
    if present is not None and not force and (present.get("cluster") or {}).get("server") != cluster["server"]:
        raise Failure(
            f"{path} already has a cluster {name} at {(present.get('cluster') or {}).get('server')}: "
            "choose another name with --name, or replace it with --force",
            Code.CONFLICT,
        )
    result = {"apiVersion": "v1", "kind": "Config", **theirs}
    result["clusters"] = _with(theirs.get("clusters"), {"name": name, "cluster": cluster})
    result["users"] = _with(theirs.get("users"), {"name": user_name, "user": ours["users"][0]["user"]})
    result["contexts"] = _with(theirs.get("contexts"), {"name": name, "context": {"cluster": name, "user": user_name}})
    if use or not theirs.get("current-context"):
        result["current-context"] = name
    return result


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
        raise Failure(f"{path} is being changed by somebody else; if not, remove {lock}", Code.CONFLICT) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _replace(path: Path, before: str, after: str) -> Path | None:
    from remuda.apiserver.pki import write_private
    from remuda.kube.clock import SYSTEM_CLOCK, rfc3339

    backup: Path | None = None
    if before:
        backup = path.with_name(f"{path.name}.{rfc3339(SYSTEM_CLOCK.time()).replace(':', '')}")
        write_private(backup, before.encode())
    write_private(path, after.encode())
    return backup
