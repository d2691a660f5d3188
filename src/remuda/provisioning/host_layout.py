"""Paths and addresses on a host: every path and every loopback address of a plan goes through here
(docs/reference/node-plan.md#directories-and-addresses).

An ordinary host uses the original's paths: `Layout("/", "localhost")`. A host that is only a directory with an address
in 127.0.0.0/8 sends its root and its address when it registers; an annotation on the objects made for it keeps them.
A host names its own root, so the value is checked before it becomes part of a plan.
"""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.kube.encoding import jsonio

ANNOTATION = "remuda.dev/layout"
# The agent's installer reads them; the host sets them itself, a cluster's variables never do.
VARIABLES = frozenset(("CATTLE_HOST_ROOT", "CATTLE_HOST_LOOPBACK"))
_LONGEST = 1024
_PLAIN = "localhost"
# By the cluster's stack preference; empty means both families.
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
    """`root` precedes every absolute path of the plan; `loopback` is the host in the URLs that the host itself requests."""

    root: str = "/"
    loopback: str = _PLAIN

    def __post_init__(self) -> None:
        problem = _root_problem(self.root) or _loopback_problem(self.loopback)
        if problem:
            raise LayoutError(problem)

    @property
    def is_plain(self) -> bool:
        """True if plans for this host equal the original's byte for byte."""
        return self.root == "/" and self.loopback == _PLAIN

    @property
    def own_address(self) -> str:
        """The address that this host does not share with the one it is on; empty for an ordinary host."""
        return "" if self.loopback == _PLAIN else self.loopback.strip("[]")

    def path(self, absolute: str) -> str:
        """The path on this host for a path of an ordinary host. User paths with `..` stay below the root."""
        if self.root == "/":
            return absolute
        return self.root + posixpath.normpath("/" + absolute.lstrip("/"))

    def below(self, path: str) -> str:
        """The same for a path that may already be one of this host's."""
        plain = posixpath.normpath(path)
        return plain if self.root != "/" and plain.startswith(f"{self.root}/") else self.path(path)

    def loopback_for(self, stack: str) -> str:
        """The host of loopback URLs: the host's own address, else what the cluster's stack preference asks for."""
        return self.loopback if self.loopback != _PLAIN else _LOOPBACKS.get(stack, _PLAIN)


PLAIN = Layout()


def of_annotations(annotations: Mapping[str, str]) -> Layout:
    """The layout in a machine's annotations; raises LayoutError."""
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
    """The text that `parse` reads."""
    return jsonio.dumps_text({"loopback": layout.loopback, "root": layout.root})
