"""The file of logins: servers, their trusted CAs, and the session's token; readable by its owner only.

`$XDG_CONFIG_HOME/remuda/logins.json`. One of them is the current one. What a newer version wrote and this one does not know
stays.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from remuda.kube.encoding import jsonio

from ..exit_codes import Code, Failure

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Login:
    """`ca` is PEM, "" for whom the system trusts."""

    name: str
    server: str
    token: str = field(repr=False)
    user: str = ""
    ca: str = ""
    insecure: bool = False

    def manifest(self) -> Obj:
        found: Obj = {"server": self.server, "user": self.user, "token": self.token}
        if self.ca:
            found["ca"] = self.ca
        if self.insecure:
            found["insecure"] = True
        return found


def default_path(environ: Mapping[str, str] | None = None) -> Path:
    values = os.environ if environ is None else environ
    given = values.get("XDG_CONFIG_HOME", "")
    home = Path(values["HOME"]) if values.get("HOME") else Path.home()
    # The standard says that a relative path is to be ignored.
    return (Path(given) if given.startswith("/") else home / ".config") / "remuda" / "logins.json"


class Logins:
    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()

    def names(self) -> list[str]:
        return sorted(self._read()["logins"])

    def get(self, name: str = "") -> Login | None:
        """The one of that name, or the current one."""
        found = self._read()
        return _login(found, name or str(found.get("current") or ""))

    def of_server(self, server: str) -> Login | None:
        """The one for a server; the current one if it is."""
        found = self._read()
        names = [str(found.get("current") or ""), *sorted(found["logins"])]
        return next((login for name in names if (login := _login(found, name)) is not None and login.server == server), None)

    def put(self, login: Login) -> None:
        """Keep it, and make it the current one."""
        with self._locked():
            found = self._read()
            entry = {**(found["logins"].get(login.name) or {}), "ca": None, "insecure": None, **login.manifest()}
            kept = {key: value for key, value in entry.items() if value is not None}
            self._write({**found, "logins": {**found["logins"], login.name: kept}, "current": login.name})

    def use(self, name: str) -> None:
        with self._locked():
            self._write({**self._read(), "current": name})

    def remove(self, name: str) -> None:
        with self._locked():
            found = self._read()
            logins = {key: value for key, value in found["logins"].items() if key != name}
            current = found.get("current")
            self._write({**found, "logins": logins, "current": "" if current == name else current})

    def _read(self) -> Obj:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {"logins": {}}
        try:
            found = jsonio.loads(data)
        except jsonio.JsonError as error:
            raise Failure(f"{self.path} is not JSON: {error}; correct it, or remove it and log in again") from None
        if not isinstance(found, dict) or not isinstance(found.get("logins"), dict | None):
            raise Failure(f"{self.path} holds no logins; correct it, or remove it and log in again")
        return {**found, "logins": found.get("logins") or {}}

    def _write(self, content: Obj) -> None:
        from remuda.kube.private_files import write_private

        write_private(self.path, jsonio.dumps(content) + b"\n")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.path.with_name(f"{self.path.name}.lock"), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _login(found: Obj, name: str) -> Login | None:
    entry = found["logins"].get(name)
    if not name or not isinstance(entry, dict):
        return None
    return Login(
        name,
        str(entry.get("server") or ""),
        str(entry.get("token") or ""),
        str(entry.get("user") or ""),
        str(entry.get("ca") or ""),
        entry.get("insecure") is True,
    )


def complete_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Shell completion: the names of logins. A file that can't be read completes nothing."""
    try:
        return [name for name in Logins().names() if name.startswith(incomplete)]
    except (Failure, OSError):
        return []


def known(name: str) -> Login:
    """The login of that name, or the current one; a sentence when there is none."""
    logins = Logins()
    found = logins.get(name)
    if found is None and name:
        raise Failure(f"there is no login {name}: see remuda login --list", Code.NOT_FOUND)
    if found is None:
        raise Failure("you are not logged in: remuda login URL", Code.NOT_FOUND)
    return found
