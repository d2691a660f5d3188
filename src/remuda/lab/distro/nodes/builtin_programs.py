"""Images that a simulated node really runs: our own, whose entrypoint is installed on the host anyway.

An image is recognised by its name, from any registry. It runs as a known entrypoint with a known environment, never with a
`command` or `args` of the pod: a pod with any but those of our own manifests runs in name only, as all other pods do. There are
no namespaces, so a program gets the paths of its mounts and the host's own address as options.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import remuda
from remuda.access.agent_objects import AUTH_COMMAND, AUTH_PORT
from remuda.images.recipe import REPOSITORY as CLUSTER_AGENT

Obj = dict[str, Any]

_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_REFERENCE = re.compile(r"(?P<name>.+?)(:[\w][\w.-]{0,127})?(@[\w+.-]+:[0-9a-fA-F]+)?")
# As the image's own `remuda` does it: the environment can't choose which code runs.
_ENTRY: Final = "import sys; sys.path.insert(0, {source!r}); from remuda.cli import main; main()"
# Variables for our own programs. Others could make a loader or an interpreter run something else.
_VARIABLES = re.compile(r"CATTLE_\w+|STRICT_VERIFY|KUBERNETES_SERVICE_(HOST|PORT)|HOSTNAME|TZ|(?i:https?_proxy|no_proxy)")


def entrypoint(*arguments: str) -> tuple[str, ...]:
    """`remuda ARGUMENTS` as installed here."""
    source = str(Path(remuda.__file__).parents[1])
    return (sys.executable, "-I", "-c", _ENTRY.format(source=source), *arguments)


@dataclass(frozen=True, slots=True)
class BuiltinProgram:
    """`repository` is the image's name without registry, tag and digest; `places` are options that take a mount's path;
    `variables` are those of the pod's environment that it may get. `asked` is the `command` of pods that select this program of
    the image; `port` is where it listens on its host's own address, if it does."""

    repository: str
    entrypoint: tuple[str, ...]
    places: Mapping[str, str] = field(default_factory=dict)
    variables: re.Pattern[str] = _VARIABLES
    asked: tuple[str, ...] = ()
    port: int = 0

    def command(self, place: Callable[[str], Path | None], host: str = "127.0.0.1") -> list[str]:
        """The command to run. `place` maps a path of the container to one on this host; `host` is the host's own address."""
        told = ["--listen", f"{host}:{self.port}"] if self.port else []
        for option, path in self.places.items():
            if (found := place(path)) is not None:
                told += [option, str(found)]
        return [*self.entrypoint, *told]

    def environment(self, wanted: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in wanted.items() if self.variables.fullmatch(name)}


BUILT_IN: Final = (
    BuiltinProgram(
        CLUSTER_AGENT,
        entrypoint("cluster-agent"),
        places=MappingProxyType({"--credentials": "/cattle-credentials", "--service-account": _ACCOUNT}),
    ),
    BuiltinProgram(
        CLUSTER_AGENT,
        entrypoint("kube-api-auth"),
        asked=AUTH_COMMAND,
        port=AUTH_PORT,
        places=MappingProxyType({"--service-account": _ACCOUNT}),
    ),
)


def program_of(container: Obj, programs: Iterable[BuiltinProgram]) -> BuiltinProgram | None:
    """The program of a container's image; None when there is none, or when the pod runs another command in it."""
    if container.get("args"):
        return None
    asked = tuple(container.get("command") or ())
    found = _REFERENCE.fullmatch(container.get("image") or "")
    if found is None:
        return None
    name = found["name"]
    fitting = (each for each in programs if name == each.repository or name.endswith(f"/{each.repository}"))
    return next((each for each in fitting if each.asked == asked), None)
