"""Flags of a driver, and a user's options for them: on a command line, in the environment, or in an object.

Types and precedence are rancher-machine's: the command line comes first, then the environment, then the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from .errors import DriverError, Reason

Value = str | int | bool | tuple[str, ...]

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False", "")
_HUMP = re.compile(r"([a-z0-9])([A-Z])")


class FlagKind(StrEnum):
    STRING = "string"
    INT = "int"
    BOOL = "bool"
    STRINGS = "strings"  # given any number of times


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: `name` is whole, with the driver's name and without dashes before it (`amazonec2-region`)."""

    name: str
    kind: FlagKind = FlagKind.STRING
    default: Value | None = None
    usage: str = ""
    env: str = ""
    # Further variables with the same meaning: those made of a cloud credential's field, if their names differ.
    also: tuple[str, ...] = ()
    # Never kept, never logged.
    secret: bool = False

    @property
    def initial(self) -> Value:
        """The default, or the empty value of its kind."""
        if self.default is not None:
            return self.default
        match self.kind:
            case FlagKind.STRING:
                return ""
            case FlagKind.INT:
                return 0
            case FlagKind.BOOL:
                return False
            case FlagKind.STRINGS:
                return ()


class Options:
    """Typed values of a driver's flags, asked for by their names without the driver's: `options.text("region")`."""

    __slots__ = ("_driver", "_flags", "_given")

    def __init__(self, driver: str, flags: Iterable[Flag], given: Mapping[str, Value] | None = None) -> None:
        self._driver = driver
        self._flags = {flag.name: flag for flag in flags}
        self._given = dict(given or {})

    @classmethod
    def read(
        cls,
        driver: str,
        flags: Sequence[Flag],
        arguments: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Options:
        """`arguments` by whole flag name or by field name (`vpcId`). Raises DriverError(INVALID) for a bad one."""
        known = {flag.name: flag for flag in flags}
        given: dict[str, Value] = {}
        for flag in flags:
            for variable in (flag.env, *flag.also):
                said = (environ or {}).get(variable, "") if variable else ""
                if said:
                    given[flag.name] = _parsed(flag, said)
                    break
        for name, value in (arguments or {}).items():
            found = known.get(name) or known.get(flag_of(driver, name))
            if found is None:
                raise DriverError(Reason.INVALID, f"the driver {driver} has no option {name}", field=name)
            given[found.name] = _parsed(found, value)
        return cls(driver, flags, given)

    def text(self, name: str) -> str:
        return str(self._value(name, FlagKind.STRING))

    def number(self, name: str) -> int:
        value = self._value(name, FlagKind.INT)
        assert isinstance(value, int)
        return value

    def on(self, name: str) -> bool:
        return bool(self._value(name, FlagKind.BOOL))

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._value(name, FlagKind.STRINGS)
        assert isinstance(value, tuple)
        return value

    def given(self, name: str) -> bool:
        """True if the option was given, even with its default value."""
        return self._whole(name) in self._given

    def field(self, name: str) -> str:
        """The option's name in a machine config: for messages."""
        return field_of(self._whole(name))

    def replaced(self, **changes: Value) -> Options:
        """The options with other values; names without the driver's, `_` for `-`."""
        whole = {self._whole(name.replace("_", "-")): value for name, value in changes.items()}
        return Options(self._driver, self._flags.values(), {**self._given, **whole})

    def kept(self) -> dict[str, object]:
        """The options that may be written down: all that were given but secrets, by whole flag name."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in sorted(self._given.items())
            if not self._flags[name].secret
        }

    def _whole(self, name: str) -> str:
        whole = f"{self._driver}-{name}"
        if whole in self._flags:
            return whole
        if name in self._flags:
            return name
        raise KeyError(f"the driver {self._driver} has no flag {whole}")

    def _value(self, name: str, kind: FlagKind) -> Value:
        flag = self._flags[self._whole(name)]
        if flag.kind is not kind:
            raise TypeError(f"the flag {flag.name} is a {flag.kind}, not a {kind}")
        value = self._given.get(flag.name)
        return flag.initial if value is None else value


def field_of(flag: str) -> str:
    """`amazonec2-vpc-id` → `vpcId` (docs/reference/machines.md#fields-of-a-driver)."""
    first, *rest = flag.split("-")[1:] or [flag]
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def flag_of(driver: str, field: str) -> str:
    """`vpcId` → `amazonec2-vpc-id` (docs/reference/machines.md#arguments)."""
    kebab = _HUMP.sub(r"\1-\2", field).lower()
    return f"{driver}-{kebab}"


def _parsed(flag: Flag, said: object) -> Value:
    match flag.kind:
        case FlagKind.STRING:
            if isinstance(said, str | int) and not isinstance(said, bool):
                return str(said)
        case FlagKind.INT:
            if isinstance(said, str | int) and not isinstance(said, bool):
                try:
                    return int(said)
                except ValueError:
                    pass
        case FlagKind.BOOL:
            if isinstance(said, bool):
                return said
            if said in _TRUE:
                return True
            if said in _FALSE:
                return False
        case FlagKind.STRINGS:
            if isinstance(said, str):
                return tuple(part.strip() for part in said.split(",") if part.strip())
            if isinstance(said, Sequence) and all(isinstance(part, str) for part in said):
                return tuple(said)
    shown = "" if flag.secret else f" ({said!r})"
    raise DriverError(Reason.INVALID, f"{flag.name} must be of the kind {flag.kind}{shown}", field=field_of(flag.name))


# --- credential variables -------------------------------------------------------------------------------------------------
#
# From a cloud credential to a Job's environment, as rancher-machine's drivers look for it
# (docs/reference/machines.md#environment).

_PREFIXES = {"amazonec2": "AWS", "openstack": "OS", "rackspace": "OS", "vmwarevsphere": "VSPHERE", "vmwarefusion": "FUSION"}
_PREFIXES |= {"vmwarevcloudair": "VCLOUDAIR"}


def variable(driver: str, field: str) -> str:
    """`amazonec2`, `secretKey` → `AWS_SECRET_KEY`."""
    snake = _HUMP.sub(r"\1_\2", field)
    return f"{_PREFIXES.get(driver, driver)}_{snake}".upper()


def environment(driver: str, credential: Mapping[str, str]) -> dict[str, str]:
    """The variables for the decoded data of a credential's Secret: the field is the part of a key after its last dash."""
    return {variable(driver, key.rpartition("-")[2]): value for key, value in credential.items()}
