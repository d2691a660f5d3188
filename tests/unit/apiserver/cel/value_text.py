"""CEL values as text, so that a table of expectations can be read and compared."""

from __future__ import annotations

import json
from typing import Any

from remuda.apiserver.cel.timestamps import format_duration, format_timestamp
from remuda.apiserver.cel.values import (
    Duration,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    elements,
    is_list,
    is_map,
    kind_of,
    mapping,
)
from remuda.kube.encoding import go_format


def shown(value: Any) -> str:
    if value is None or isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Uint):
        return f"{int(value)}u"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return go_format.double(value) + "f"
    if isinstance(value, bytes):
        return "b" + value.hex()
    if isinstance(value, Timestamp):
        return "google.protobuf.Timestamp " + format_timestamp(value)
    if isinstance(value, Duration):
        return "google.protobuf.Duration " + format_duration(value)
    if isinstance(value, Optional):
        return f"optional({shown(value.value)})" if value.present else "optional.none"
    if isinstance(value, TypeValue):
        return "type " + value.name
    if is_list(value):
        return "[" + ", ".join(shown(item) for item in elements(value)) + "]"
    if is_map(value):
        return "{" + ", ".join(sorted(f"{shown(k)}: {shown(v)}" for k, v in mapping(value).items())) + "}"
    return kind_of(value) + "?"
