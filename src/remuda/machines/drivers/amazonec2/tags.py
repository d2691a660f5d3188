"""Tags: the user's, and ours, by which all resources are found again. Pure.

No slash in ours: EC2 refuses such keys where tags are shown to the instance itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...driver import Machine
from ...errors import DriverError, Reason

OWNER, MACHINE, TOKEN = "remuda:owner", "remuda:machine", "remuda:token"

Tags = dict[str, str]


def parsed(said: str) -> Tags:
    """`k,v,k,v` → {k: v}. Raises DriverError."""
    parts = said.split(",") if said else []
    if len(parts) % 2:
        raise DriverError(Reason.INVALID, "tags must be pairs: key1,value1,key2,value2", field="tags")
    return dict(zip(parts[::2], parts[1::2], strict=True))


def ours(machine: Machine) -> Tags:
    found = {OWNER: machine.owner, MACHINE: machine.name, TOKEN: machine.token}
    return {key: value for key, value in found.items() if value}


def specification(kind: str, tags: Mapping[str, str]) -> dict[str, Any]:
    return {"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


def read(described: Mapping[str, Any]) -> Tags:
    """Of anything that EC2 describes."""
    return {str(tag["Key"]): str(tag.get("Value", "")) for tag in described.get("Tags") or ()}


def having(key: str, values: Iterable[str]) -> dict[str, Any]:
    """A filter."""
    return {"Name": f"tag:{key}", "Values": list(values)}
