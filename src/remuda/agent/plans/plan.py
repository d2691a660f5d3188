"""A plan, read from its bytes (docs/reference/agent.md#plan), and written again in the format of the history
(docs/reference/agent.md#history).

The checksum is that of the received bytes, never of the parsed plan: server and agent must agree on it without agreeing on JSON.
Unknown members are ignored, wrong types are an error, ``null`` counts as absent.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from typing import Any, NamedTuple

from ..errors import PlanError

DEFAULT_PERIOD = 600
_LARGEST = 1 << 63
_HALF_PAIR = re.compile("[\ud800-\udfff]")


class File(NamedTuple):
    path: str
    content: str = ""
    permissions: str = ""
    uid: int = 0
    gid: int = 0
    directory: bool = False
    action: str = ""

    def data(self) -> bytes:
        try:
            return base64.b64decode(self.content, validate=True)
        except (binascii.Error, ValueError) as reason:
            raise PlanError(f"content of {self.path} is not base64") from reason

    def mode(self) -> int:
        if not self.permissions:
            return 0o755 if self.directory else 0o600
        try:
            mode = int(self.permissions, 8)
        except ValueError as reason:
            raise PlanError(f"permissions {self.permissions!r} of {self.path} are not octal") from reason
        if not 0 <= mode <= 0o7777:
            raise PlanError(f"permissions {self.permissions!r} of {self.path} are no file mode")
        return mode


class Instruction(NamedTuple):
    name: str = ""
    image: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    save_output: bool = False


class Periodic(NamedTuple):
    name: str = ""
    image: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    period_seconds: int = 0
    save_stderr: bool = False


class HttpGet(NamedTuple):
    url: str = ""
    insecure: bool = False
    client_cert: str = ""
    client_key: str = ""
    ca_cert: str = ""


class Probe(NamedTuple):
    name: str = ""
    initial_delay: int = 0
    timeout: int = 0
    success_threshold: int = 1
    failure_threshold: int = 3
    http_get: HttpGet = HttpGet()


class Plan(NamedTuple):
    checksum: str
    files: tuple[File, ...]
    instructions: tuple[Instruction, ...]
    periodic: tuple[Periodic, ...]
    probes: dict[str, Probe]
    raw: dict[str, Any]


def checksum_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def parse(data: bytes) -> Plan:
    """The plan in these bytes."""
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as reason:
        raise PlanError("the plan is not JSON") from reason
    top = _Members("plan", raw)
    return Plan(
        checksum=checksum_of(data),
        files=tuple(_file(m) for m in top.members("files")),
        instructions=tuple(_instruction(m) for m in top.members("instructions")),
        periodic=tuple(_periodic(m) for m in top.members("periodicInstructions")),
        probes={name: _probe(m) for name, m in top.member_map("probes").items()},
        raw=top.raw,
    )


class _Members:
    """Typed access to the members of one JSON object."""

    def __init__(self, where: str, raw: Any) -> None:
        if raw is None:
            raw = {}
        if not isinstance(raw, dict):
            raise PlanError(f"{where} is not an object")
        self.where = where
        self.raw: dict[str, Any] = raw

    def _get(self, name: str, kind: type, default: Any) -> Any:
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise PlanError(f"{self.where}.{name} is not of type {kind.__name__}")
        return value

    def text(self, name: str) -> str:
        value: str = self._get(name, str, "")
        if "\0" in value:
            raise PlanError(f"{self.where}.{name} holds a zero byte")
        return _whole(value)

    def number(self, name: str) -> int:
        value: int = self._get(name, int, 0)
        if not -_LARGEST <= value < _LARGEST:
            raise PlanError(f"{self.where}.{name} is no number of 64 bits")
        return value

    def flag(self, name: str) -> bool:
        value: bool = self._get(name, bool, False)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._get(name, list, [])
        if not all(isinstance(value, str) and "\0" not in value for value in values):
            raise PlanError(f"{self.where}.{name} is not a list of strings")
        return tuple(_whole(value) for value in values)

    def members(self, name: str) -> list[_Members]:
        return [_Members(f"{self.where}.{name}[{i}]", raw) for i, raw in enumerate(self._get(name, list, []))]

    def member_map(self, name: str) -> dict[str, _Members]:
        return {key: _Members(f"{self.where}.{name}[{key}]", raw) for key, raw in self._get(name, dict, {}).items()}

    def member(self, name: str) -> _Members:
        return _Members(f"{self.where}.{name}", self.raw.get(name))


def _whole(text: str) -> str:
    """Half of a surrogate pair is no character, and no path or argument can hold it; Go reads it so, too."""
    return _HALF_PAIR.sub("\ufffd", text)


def _file(m: _Members) -> File:
    return File(
        path=m.text("path"),
        content=m.text("content"),
        permissions=m.text("permissions"),
        uid=m.number("uid"),
        gid=m.number("gid"),
        directory=m.flag("directory"),
        action=m.text("action"),
    )


def _instruction(m: _Members) -> Instruction:
    return Instruction(
        name=m.text("name"),
        image=m.text("image"),
        command=m.text("command"),
        args=m.texts("args"),
        env=m.texts("env"),
        save_output=m.flag("saveOutput"),
    )


def _periodic(m: _Members) -> Periodic:
    return Periodic(
        name=m.text("name"),
        image=m.text("image"),
        command=m.text("command"),
        args=m.texts("args"),
        env=m.texts("env"),
        period_seconds=m.number("periodSeconds") or DEFAULT_PERIOD,
        save_stderr=m.flag("saveStderrOutput"),
    )


def _probe(m: _Members) -> Probe:
    get = m.member("httpGet")
    return Probe(
        name=m.text("name"),
        initial_delay=m.number("initialDelaySeconds"),
        timeout=m.number("timeoutSeconds"),
        success_threshold=m.number("successThreshold") or 1,
        failure_threshold=m.number("failureThreshold") or 3,
        http_get=HttpGet(
            url=get.text("url"),
            insecure=get.flag("insecure"),
            client_cert=get.text("clientCert"),
            client_key=get.text("clientKey"),
            ca_cert=get.text("caCert"),
        ),
    )


_FILE = ("content", "directory", "uid", "gid", "path", "permissions", "dynamic", "minor", "action")
_COMMON = ("name", "image", "env", "args", "command")
_PROBE = ("name", "initialDelaySeconds", "timeoutSeconds", "successThreshold", "failureThreshold", "httpGet")
_HTTP_GET = ("url", "insecure", "clientCert", "clientKey", "caCert")


def history_bytes(plan: Plan) -> bytes:
    """``{"Plan": …, "Checksum": …}`` with the original's order of keys, empty members left out, HTML characters escaped."""
    raw = plan.raw
    inside: dict[str, Any] = {
        "files": [_pick(f, _FILE) for f in raw.get("files") or []],
        "instructions": [_pick(i, (*_COMMON, "saveOutput")) for i in raw.get("instructions") or []],
        "probes": {name: _picked_probe(p) for name, p in sorted((raw.get("probes") or {}).items())},
        "periodicInstructions": [
            _pick(i, (*_COMMON, "periodSeconds", "saveStderrOutput")) for i in raw.get("periodicInstructions") or []
        ],
    }
    document = {"Plan": {key: value for key, value in inside.items() if value}, "Checksum": plan.checksum}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text.encode("utf-8", "surrogatepass")


def _pick(raw: dict[str, Any] | None, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: raw[name] for name in names if raw.get(name)} if raw else {}


def _picked_probe(raw: dict[str, Any] | None) -> dict[str, Any]:
    picked = _pick(raw, _PROBE)
    if "httpGet" in picked:
        picked["httpGet"] = _pick(picked["httpGet"], _HTTP_GET)
    return picked
