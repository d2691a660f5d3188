"""What `kubelet-arg`, `kube-controller-manager-arg` and the like say: arguments of programs that simulated clusters do not run.

A few have a meaning here; the others are read over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.access.settings import validation

from .sources import ConfigError


def said(values: Mapping[str, Any], option: str) -> dict[str, str]:
    """By name, without the dashes; of one that is said twice the last counts."""
    listed = values.get(option) or ()
    words = [listed] if isinstance(listed, str) else listed
    return {name: value for name, _, value in (str(each).removeprefix("--").partition("=") for each in words)}


def seconds(values: Mapping[str, Any], option: str, name: str, default: float) -> float:
    """A duration that must be more than nothing. Raises ConfigError."""
    text = said(values, option).get(name)
    if text is None:
        return default
    if problem := validation.duration(text):
        raise ConfigError(f"{option}: {name} {problem}")
    if not validation.seconds(text):
        raise ConfigError(f"{option}: {name} must be more than nothing")
    return validation.seconds(text)
