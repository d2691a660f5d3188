"""Where on a host things are: every path and every loopback address of a plan goes through here (design §5).

A host of its own has them where the original puts them: `Layout("/", "localhost")`. A host that is only a directory with an
address in 127.0.0.0/8 sends its root and its address when it registers; they are kept as an annotation on what is made for
it. A host names its own root, so what it says is checked before it becomes part of a plan.
"""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.kube.encoding import jsonio

ANNOTATION = "remuda.dev/layout"
# Where the agent's installer reads them; a host says them of itself, a cluster's variables never do.
VARIABLES = frozenset(("CATTLE_HOST_ROOT", "CATTLE_HOST_LOOPBACK"))
_LONGEST = 1024
_PLAIN = "localhost"
# What the cluster's stack says of the loopback; no word means both families.
_LOOPBACKS = {"": _PLAIN, "dual": _PLAIN, "ipv4": "127.0.0.1", "ipv6": "[::1]"}


class LayoutError(ValueError):
    """A layout that no host may have."""


def _root_problem(root: str) -> str:
    if not root.startswith("/") or root.startswith("//") or posixpath.normpath(root) != root:
        return f"a layout's root is an absolute path without detours, not {root[:_LONGEST]!r}"
    if len(root) > _LONGEST or not root.isprintable():
        return "a layout's root is too long or not printable"
    return ""


def _loopback_problem(loopback: str) -> str:
    if loopback == _PLAIN:
        return ""
    try:
        address = ipaddress.ip_address(loopback.removeprefix("[").removesuffix("]"))
    except ValueError:
        return f"a layout's loopback is localhost or a loopback address, not {loopback[:64]!r}"
    written = f"[{address}]" if address.version == 6 else str(address)
    if not address.is_loopback or written != loopback:
        return f"a layout's loopback is localhost or a loopback address, not {loopback[:64]!r}"
    return ""


@dataclass(frozen=True, slots=True)
class Layout:
    """`root` is before every absolute path of the plan; `loopback` is the host in the URLs that the host asks itself."""

    root: str = "/"
    loopback: str = _PLAIN

    def __post_init__(self) -> None:
        problem = _root_problem(self.root) or _loopback_problem(self.loopback)
        if problem:
            raise LayoutError(problem)

    @property
    def is_plain(self) -> bool:
        """Whether plans for this host are byte for byte the original's."""
        return self.root == "/" and self.loopback == _PLAIN

    @property
    def own_address(self) -> str:
        """The address that this host does not share with the one it is on; empty for an ordinary host."""
        return "" if self.loopback == _PLAIN else self.loopback.strip("[]")

    def path(self, absolute: str) -> str:
        """Where a path of an ordinary host is on this one. What a user named with `..` stays below the root."""
        if self.root == "/":
            return absolute
        return self.root + posixpath.normpath("/" + absolute.lstrip("/"))

    def below(self, path: str) -> str:
        """The same of a path that may be one of this host already."""
        plain = posixpath.normpath(path)
        return plain if self.root != "/" and plain.startswith(f"{self.root}/") else self.path(path)

    def loopback_for(self, stack: str) -> str:
        """The host of loopback URLs: the host's own address, else what the cluster's stack preference asks for."""
        return self.loopback if self.loopback != _PLAIN else _LOOPBACKS.get(stack, _PLAIN)


PLAIN = Layout()


def of_annotations(annotations: Mapping[str, str]) -> Layout:
    """The layout that a machine's annotations tell; raises LayoutError."""
    text = annotations.get(ANNOTATION)
    return parse(text) if text else PLAIN


def parse(text: str) -> Layout:
    """The layout in the text of the annotation or the registration header; raises LayoutError."""
    try:
        said: Any = jsonio.loads(text)
    except jsonio.JsonError as error:
        raise LayoutError(f"a layout is a JSON object with root and loopback: {error}") from None
    if not isinstance(said, dict):
        raise LayoutError("a layout is a JSON object with root and loopback")
    root, loopback = said.get("root", "/"), said.get("loopback", _PLAIN)
    if not isinstance(root, str) or not isinstance(loopback, str):
        raise LayoutError("a layout's root and loopback are strings")
    return Layout(root, loopback)


def text_of(layout: Layout) -> str:
    """What `parse` reads."""
    return jsonio.dumps_text({"loopback": layout.loopback, "root": layout.root})
