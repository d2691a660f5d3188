"""The encoding of outputs in the Secret (docs/reference/agent.md#outputs): gzip of JSON, base64 inside.

gzip's header carries a time; it is written as zero, so that equal outputs are equal bytes and an idle agent writes nothing.
A Secret holds 1 MiB at most: an encoding that is too large is made again with the middle of the longest texts left out.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

#: Plan, its applied copy and three outputs share one Secret of 1 MiB.
LARGEST = 192 * 1024
#: A few kilobytes can be made of gigabytes. Outputs of a plan that is run are a few megabytes each at most.
_LARGEST_UNPACKED = 64 * 1024 * 1024
#: zlib's word for the format.
_GZIP = 16 + zlib.MAX_WBITS
_MARK = b"\n[... left out: too long ...]\n"


class PeriodicOutput(NamedTuple):
    """The state of one periodic instruction, in the protocol's words and order."""

    name: str
    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0
    last_success: str = ""
    failures: int = 0
    last_failure: str = ""


def pack(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def unpack(data: bytes) -> Any:
    """The JSON inside, or nothing when the bytes are empty or broken: a lost output must not stop a plan."""
    if not data:
        return None
    try:
        reader = zlib.decompressobj(_GZIP)
        found = reader.decompress(data, _LARGEST_UNPACKED)
        return json.loads(found) if reader.eof else None
    except (ValueError, RecursionError, zlib.error):
        return None


def encode_one_time(outputs: dict[str, bytes | None]) -> bytes:
    def packed(bound: int | None) -> bytes:
        return _json({name: _b64(shorten(data, bound)) if data else None for name, data in sorted(outputs.items())})

    return _fitting(packed, [len(data) for data in outputs.values() if data])


def decode_one_time(data: bytes) -> dict[str, bytes | None]:
    value = unpack(data)
    if not isinstance(value, dict):
        return {}
    return {name: _unb64(item) or None for name, item in value.items()}


def encode_periodic(outputs: dict[str, PeriodicOutput]) -> bytes:
    def packed(bound: int | None) -> bytes:
        return _json({name: _periodic_json(one, bound) for name, one in sorted(outputs.items())})

    return _fitting(packed, [max(len(one.stdout), len(one.stderr)) for one in outputs.values()])


def decode_periodic(data: bytes) -> dict[str, PeriodicOutput]:
    value = unpack(data)
    if not isinstance(value, dict):
        return {}
    found: dict[str, PeriodicOutput] = {}
    for name, item in value.items():
        if isinstance(item, dict):
            found[name] = PeriodicOutput(
                name=str(item.get("name") or name),
                stdout=_unb64(item.get("stdout")),
                stderr=_unb64(item.get("stderr")),
                exit_code=_int(item.get("exitCode")),
                last_success=str(item.get("lastSuccessfulRunTime") or ""),
                failures=_int(item.get("failures")),
                last_failure=str(item.get("lastFailedRunTime") or ""),
            )
    return found


def shorten(data: bytes, bound: int | None) -> bytes:
    """Beginning and end of a long text: the attempt, and its result."""
    if bound is None or len(data) <= bound:
        return data
    head = bound // 4
    return data[:head] + _MARK + data[len(data) - (bound - head) :]


def _periodic_json(one: PeriodicOutput, bound: int | None) -> dict[str, Any]:
    return {
        "name": one.name,
        "stdout": _b64(shorten(one.stdout, bound)),
        "stderr": _b64(shorten(one.stderr, bound)),
        "exitCode": one.exit_code,
        "lastSuccessfulRunTime": one.last_success,
        "failures": one.failures,
        "lastFailedRunTime": one.last_failure,
    }


def _fitting(packed: Callable[[int | None], bytes], lengths: list[int]) -> bytes:
    data = pack(packed(None))
    bound = max(lengths, default=0)
    while len(data) > LARGEST and bound > 64:
        bound //= 2
        data = pack(packed(bound))
    return data


def _json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unb64(value: Any) -> bytes:
    if not isinstance(value, str):
        return b""
    try:
        return base64.b64decode(value)
    except (binascii.Error, ValueError):
        return b""


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0
