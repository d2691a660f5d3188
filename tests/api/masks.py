"""What may differ between two servers that say the same thing: identities, times, and what is derived from them.

This is the only mask. Everything else that differs is a failure, or an expected failure listed in docs/api-compatibility.md.
"""

from __future__ import annotations

import re
from typing import Any

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
REVISIONS = frozenset(("resourceVersion", "continue", "storageVersionHash"))
# A revision inside a sentence.
REVISION_TEXT = re.compile(r"(?<=resource version: )\d+(?: \(\d+\))?|(?<=current: )\d+|(?<=record \()\d+|(?<=precondition \()\d+")
TOKEN = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+")
AGE = re.compile(r"^\d+(?:s|m|h|d)(?:\d+[smh])?$")
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[\w+/=\s]+-----END CERTIFICATE-----\n?")
# Where a server says its own address or build.
HOST = re.compile(r"127\.0\.0\.1:\d+")


def masked(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for name, child in value.items():
            # Fields that are owned by uid have it in their key; several of them stay several.
            shown = UUID.sub("<uid>", name)
            while shown in found:
                shown += "'"
            found[shown] = masked(child, name)
        return found
    if key == "managedFields" and isinstance(value, list):
        # Sorted by time within an operation, so that two servers differ when one of them crosses a second.
        value = sorted(
            value, key=lambda entry: [str(entry.get(name)) for name in ("operation", "manager", "apiVersion", "subresource")]
        )
    if isinstance(value, list):
        return [masked(child, key) for child in value]
    if not isinstance(value, str):
        return value
    if key in REVISIONS and value:
        return "<revision>"
    if key == "cells" and AGE.match(value):
        return "<age>"
    # Column texts are each server's own words.
    if key == "description":
        return "<words>"
    for pattern, name in (
        (UUID, "<uid>"),
        (TIME, "<time>"),
        (REVISION_TEXT, "<revision>"),
        (TOKEN, "<token>"),
        (CERTIFICATE, "<certificate>"),
        (HOST, "<host>"),
    ):
        value = pattern.sub(name, value)
    return value
