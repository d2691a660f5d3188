"""From a cloud credential to a Job's environment, as rancher-machine's drivers look for it (protocols.md §7.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PREFIXES = {"amazonec2": "AWS", "openstack": "OS", "rackspace": "OS", "vmwarevsphere": "VSPHERE", "vmwarefusion": "FUSION"}
_PREFIXES |= {"vmwarevcloudair": "VCLOUDAIR"}
_HUMP = re.compile(r"([a-z0-9])([A-Z])")


def variable(driver: str, field: str) -> str:
    """`amazonec2`, `secretKey` → `AWS_SECRET_KEY`."""
    snake = _HUMP.sub(r"\1_\2", field)
    return f"{_PREFIXES.get(driver, driver)}_{snake}".upper()


def environment(driver: str, credential: Mapping[str, str]) -> dict[str, str]:
    """Of the decoded data of a credential's Secret: what comes after the last dash of a key is the field."""
    return {variable(driver, key.rpartition("-")[2]): value for key, value in credential.items()}
