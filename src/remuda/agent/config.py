"""The agent's start parameters: its configuration and the connection to its plan (docs/reference/agent.md#configuration).

These files say where root writes and which server it obeys, so only their owner may read them, and the owner must be the agent's
own user; otherwise the agent does not start. ``paths.Layout`` comes from the key ``root``, which is ours.
"""

from __future__ import annotations

import os
import stat
from typing import Any, NamedTuple

from . import yamlsubset
from .errors import ConfigError, OutsideRoot, PlanError
from .paths import Layout

DEFAULT_CONFIG = "/etc/rancher/agent/config.yaml"


class Config(NamedTuple):
    """The configuration, with the protocol's names in Python's spelling."""

    work_directory: str = ""
    local_enabled: bool = False
    local_plan_directory: str = ""
    applied_plan_directory: str = ""
    remote_enabled: bool = False
    connection_info_file: str = ""
    preserve_work_directory: bool = False
    images_directory: str = "/var/lib/rancher/agent/images"
    agent_registries_file: str = "/etc/rancher/agent/registries.yaml"
    image_credential_provider_config: str = "/var/lib/rancher/credentialprovider/config.yaml"
    image_credential_provider_bin_directory: str = "/var/lib/rancher/credentialprovider/bin"
    interlock_directory: str = ""
    # Ours: the directory this host lives in, and how long one instruction may take (0: as long as it likes).
    root: str = "/"
    instruction_timeout_seconds: int = 3600
    periodic_timeout_seconds: int = 600


# Where the agent itself writes: on a host with a root of its own, below that.
_WRITTEN = (
    "work_directory",
    "local_plan_directory",
    "applied_plan_directory",
    "interlock_directory",
    "connection_info_file",
)


class ConnectionInfo(NamedTuple):
    """The connection to the plan."""

    kube_config: str
    namespace: str
    secret_name: str


def load_config(path: str) -> Config:
    """The configuration, checked; unknown keys are ignored, as the original does."""
    given = _load(path)
    values: dict[str, Any] = {}
    for field, default in Config._field_defaults.items():
        name = _camel(field)
        value = given.get(name)
        if value is None or value == "":
            continue
        values[field] = _typed(path, name, value, type(default))
    config = Config(**values)
    _check(path, config)
    return config


def _check(path: str, config: Config) -> None:
    if not config.local_enabled and not config.remote_enabled:
        raise ConfigError(f"{path}: neither localEnabled nor remoteEnabled is true, so there is nothing to do")
    if not config.work_directory:
        raise ConfigError(f"{path}: workDirectory is missing")
    if os.path.normpath(config.work_directory) == "/" or not os.path.isabs(config.work_directory):
        raise ConfigError(f"{path}: workDirectory is emptied before each plan, so it can't be {config.work_directory}")
    if config.local_enabled and not config.local_plan_directory:
        raise ConfigError(f"{path}: localEnabled needs localPlanDirectory")
    if config.remote_enabled and not config.connection_info_file:
        raise ConfigError(f"{path}: remoteEnabled needs connectionInfoFile")
    if not os.path.isabs(config.root):
        raise ConfigError(f"{path}: root must be an absolute path")
    for field in _WRITTEN:
        place = getattr(config, field)
        try:
            if place:
                Layout(config.root).inside(place)
        except (OutsideRoot, PlanError) as reason:
            raise ConfigError(f"{path}: {_camel(field)}: {reason}") from reason


def load_connection(path: str) -> ConnectionInfo:
    """The connection to the plan, checked."""
    given = _load(path)
    values = []
    for name in ("kubeConfig", "namespace", "secretName"):
        value = given.get(name)
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{path}: {name} is missing")
        values.append(value)
    return ConnectionInfo(*values)


def _load(path: str) -> dict[str, Any]:
    base = os.path.basename(path)
    if ".json" not in base and ".yaml" not in base:
        raise ConfigError(f"{path}: the name must contain .json or .yaml")
    try:
        with open(path, "rb") as stream:
            _check_owner(path, os.fstat(stream.fileno()))
            text = stream.read().decode()
    except OSError as reason:
        raise ConfigError(f"can't read {path}: {reason.strerror}") from reason
    except UnicodeDecodeError as reason:
        raise ConfigError(f"{path}: not UTF-8") from reason
    try:
        value = yamlsubset.load(text)
    except ConfigError as reason:
        raise ConfigError(f"{path}: {reason}") from reason
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: not a map of keys and values")
    return value


def _check_owner(path: str, found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if mode != 0o600:
        raise ConfigError(f"{path}: mode is {mode:04o}, must be 0600")
    if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
        raise ConfigError(f"{path}: owned by {found.st_uid}:{found.st_gid}, must be {os.geteuid()}:{os.getegid()}")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _typed(path: str, name: str, value: Any, kind: type) -> Any:
    if kind is int and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if kind in (bool, str) and isinstance(value, kind):
        return value
    raise ConfigError(f"{path}: {name} must be a {'whole number' if kind is int else 'boolean' if kind is bool else 'string'}")
