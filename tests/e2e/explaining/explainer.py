"""A user with `remuda explain`, who does what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.cli.remote.clusters import waits_in
from tests.e2e.access.fronted import Fronted
from tests.e2e.access.harness import Gateway, Person
from tests.e2e.serving import eventually
from tests.real import need

Obj = dict[str, Any]
PATIENCE = 180.0


@dataclass(frozen=True)
class Cause:
    """The end of a chain of waits, as JSON shows it."""

    code: str
    actor: str
    kind: str
    name: str
    message: str
    advice: str
    commands: tuple[str, ...]
    on: str = ""


class Explainer:
    """`remuda` and kubectl as the server's administrator; commands run in a shell, as they are printed."""

    def __init__(self, gateway: Gateway, directory: Path) -> None:
        programs = directory / "bin"
        programs.mkdir()
        kubectl = need.programs("kubernetes")["kubectl"]
        for name, words in (("remuda", f"{sys.executable} -m remuda"), ("kubectl", str(kubectl))):
            (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (programs / name).chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REMUDA_")}
        self.environment = {
            **kept,
            "HOME": str(directory),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(gateway.kubeconfig),
            "REMUDA_DATA_DIR": str(gateway.directory),
        }
        self.gateway = gateway
        if isinstance(gateway, Fronted):
            self._log_in(gateway.administrator(), directory)

    def _log_in(self, person: Person, directory: Path) -> None:
        """In front of another Kubernetes only the gateway knows what waits, and it has users."""
        self.environment["KUBECONFIG"] = str(person.kubeconfig(directory))
        token = directory / "token"
        token.write_text(f"{person.token}\n")
        self.run(f"remuda login {self.gateway.url} --ca-file {self.gateway.ca} --token - < {token}")

    def run(self, command: str) -> str:
        """A line as a user copies it into a shell."""
        done = subprocess.run(
            ["sh", "-ec", command], env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout + done.stderr

    def apply(self, *objects: Obj, as_user: str = "") -> str:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        done = subprocess.run(
            ["kubectl", "apply", "-f", "-", *(("--as", as_user) if as_user else ())],
            env=self.environment,
            input=json.dumps(listed),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        return done.stdout + done.stderr

    def explained(self, cluster: str) -> Obj:
        found: Obj = json.loads(self.run(f"remuda explain {cluster} -o json"))
        return found

    def causes(self, cluster: str) -> list[Cause]:
        """The ends of the chain; all, since one that another object tells again is shown elsewhere."""
        return _causes(self.explained(cluster))

    def until(self, cluster: str, is_it: Callable[[Cause], bool], what: str, *, actor: str, advice: str) -> Cause:
        """The cause that `toDo` begins with; with the party that ends it, and this in its advice."""
        found = self._until(cluster, lambda each, said: is_it(each) and _begins_with(said, each), what)
        assert found.actor == actor and advice in found.advice, found
        return found

    def until_noted(self, cluster: str, is_it: Callable[[Cause], bool], what: str, *, advice: str) -> Cause:
        """A report, for which nothing waits: it is behind all that holds a cluster up."""
        found = self._until(cluster, lambda each, said: is_it(each) and _is_said_last(said, each), what)
        assert found.actor == "user" and advice in found.advice, found
        return found

    def _until(self, cluster: str, fits: Callable[[Cause, list[str]], bool], what: str) -> Cause:
        seen: list[Cause] = []

        def found() -> bool:
            said = self.explained(cluster)
            seen[:] = [each for each in _causes(said) if fits(each, said["toDo"])]
            return bool(seen)

        try:
            eventually(found, PATIENCE, every=1.0)
        except AssertionError:
            raise AssertionError(f"{what}: {self.run(f'remuda explain {cluster}')}\n{self.gateway.told()[-4000:]}") from None
        return seen[0]

    def gone(self, cluster: str, is_it: Callable[[Cause], bool]) -> None:
        eventually(lambda: not any(map(is_it, self.causes(cluster))), PATIENCE, every=1.0)

    def does(self, cause: Cause) -> list[str]:
        """Run the commands of an advice literally."""
        assert cause.commands, cause
        return [self.run(command) for command in cause.commands]


def _causes(said: Obj) -> list[Cause]:
    return [each for link in said["waits"] for each in _ends(link)]


def _begins_with(said: list[str], cause: Cause) -> bool:
    names, _, advice = said[0].partition(": ") if said else ("", "", "")
    return cause.name in names.split(",") and cause.advice == advice


def _is_said_last(said: list[str], cause: Cause) -> bool:
    return bool(said) and _begins_with(said[-1:], cause)


def _ends(link: Obj) -> Iterator[Cause]:
    for each in link["waits"]:
        yield from _ends(each)
    if not link["waits"]:
        on = link["on"] or {}
        yield Cause(
            link["code"],
            link["actor"],
            link["subject"]["kind"],
            link["subject"]["name"],
            link["message"],
            link["advice"],
            tuple(link["commands"]),
            f"{on['kind']} {on['name']}" if on else "",
        )


def told(gateway: Gateway, cluster: str) -> list[str]:
    """The codes of the waits that the server tells of a cluster, for a failing test."""
    answer = gateway.endpoint.request("GET", f"/v1-remuda/waits?cluster=fleet-default/{cluster}")
    return [f"{wait.code} {wait.subject}: {wait.evidence}" for wait in waits_in(answer.json) or ()]
