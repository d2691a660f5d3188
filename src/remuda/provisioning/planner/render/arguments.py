"""The arguments that users give: which of them a machine gets, and which of those its version understands (capr.md §4.6).

What a version does not know would keep the distribution from starting, so it is left out, as the original does. It also
leaves out numbers and objects; that is kept, since giving them now would restart clusters that run without them.
`ignored` names what is left out, so that somebody can be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...releases.catalog import Argument, Release
from .context import Config, Ground, Host, Spec


def given(host: Host) -> Config:
    """The arguments for a machine: the distribution's default, the cluster's, then what labels select, the later winning."""
    runtime = host.ground.runtime
    config: Config = {"cni": runtime.default_cni} if runtime.default_cni else {}
    config.update(host.ground.global_config)
    for selector, said in host.ground.selector_configs:
        if selector.matches(host.machine.labels):
            config.update(said)
    return config


def understood(config: Spec, release: Release, server: bool) -> Config:
    """Those that a host of the role takes."""
    found: Config = {}
    for name, value in config.items():
        argument = release.argument(name, server)
        if argument is not None and isinstance(value, str | bool | list | tuple):
            found[name] = _as(argument, value)
    return found


def ignored(ground: Ground) -> tuple[str, ...]:
    """The names of arguments in the cluster's spec that no machine of it gets."""
    release = ground.facts.release
    said: dict[str, list[Any]] = {}
    for config in (ground.global_config, *(config for _, config in ground.selector_configs)):
        for name, value in config.items():
            said.setdefault(name, []).append(value)
    return tuple(sorted(name for name, values in said.items() if not _any_taken(name, values, release)))


def _any_taken(name: str, values: list[Any], release: Release) -> bool:
    return any(understood({name: value}, release, server=True) for value in values)


def _as(argument: Argument, value: Any) -> Any:
    if argument.is_boolean and isinstance(value, str):
        return value.lower() == "true"
    return list(value) if isinstance(value, tuple) else value


def pruned(config: Mapping[str, Any]) -> Config:
    """Without what says nothing."""
    return {name: value for name, value in config.items() if value is not None and value != "" and value != []}
