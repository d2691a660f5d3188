"""The flags of drivers that are not in Python, as data: the output of rancher-machine's drivers.

`flags.json` is written by `tests/real/describe_flags.py` from the program itself and compared with it by a test; the drivers in
`BY_HAND` are not part of that program.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from ..options import Flag, FlagKind, Value


class _Flag(msgspec.Struct, frozen=True):
    name: str
    kind: FlagKind
    default: str | int | list[str] | None = None
    usage: str = ""
    env: str = ""


def _by_hand(driver: str, rows: Iterable[tuple[str, FlagKind, Value | None, str]], **variables: str) -> tuple[Flag, ...]:
    return tuple(
        Flag(
            f"{driver}-{name}",
            kind,
            default,
            usage,
            variables.get(name.replace("-", "_"), f"{driver}-{name}".upper().replace("-", "_")),
        )
        for name, kind, default, usage in rows
    )


_TEXT, _NUMBER, _SWITCH = FlagKind.STRING, FlagKind.INT, FlagKind.BOOL

BY_HAND: Final[dict[str, tuple[Flag, ...]]] = {
    "linode": _by_hand(
        "linode",
        (
            ("token", _TEXT, None, "Linode API Token"),
            ("root-pass", _TEXT, None, "Root Password"),
            (
                "authorized-users",
                _TEXT,
                None,
                "Linode user accounts (separated by commas) whose SSH keys will be permitted root access",
            ),
            ("label", _TEXT, None, "Linode Instance Label"),
            ("region", _TEXT, "us-east", "Specify the region (location) of the Linode instance"),
            (
                "instance-type",
                _TEXT,
                "g6-standard-4",
                "Specify the Linode Instance type which determines CPU, memory, disk size, etc.",
            ),
            ("ssh-port", _NUMBER, 22, "SSH port"),
            ("ssh-user", _TEXT, None, "SSH username"),
            (
                "image",
                _TEXT,
                "linode/ubuntu18.04",
                "Specify the Linode Instance image which determines the OS distribution and base files",
            ),
            ("docker-port", _NUMBER, 2376, "Docker Port"),
            ("swap-size", _NUMBER, 512, "Linode Instance Swap Size (MB)"),
            ("stackscript", _TEXT, None, "Specifies the Linode StackScript to use to create the instance"),
            ("stackscript-data", _TEXT, None, "A JSON string specifying data for the selected StackScript"),
            ("create-private-ip", _SWITCH, None, "Create private IP for the instance"),
            ("ua-prefix", _TEXT, None, "Prefix the User-Agent in Linode API calls with some 'product/version'"),
            ("tags", _TEXT, None, "A comma separated list of tags to apply to the Linode resource"),
        ),
        root_pass="LINODE_ROOT_PASSWORD",
    )
}


@cache
def flags_by_driver() -> dict[str, tuple[Flag, ...]]:
    text = files(__package__).joinpath("flags.json").read_bytes()
    read = msgspec.json.decode(text, type=dict[str, list[_Flag]])
    return {driver: tuple(map(_flag, flags)) for driver, flags in read.items()} | BY_HAND


def _flag(each: _Flag) -> Flag:
    default: Value | None = tuple(each.default) if isinstance(each.default, list) else each.default
    return Flag(each.name, each.kind, default, each.usage, each.env)


def flags_of(driver: str) -> tuple[Flag, ...] | None:
    return flags_by_driver().get(driver)
