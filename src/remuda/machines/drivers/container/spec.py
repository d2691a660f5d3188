"""What a container must be to be a host: systemd as its first process, with all rights, and a control group of its own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Obj = dict[str, Any]

# The network of podman that containers are in when none is named.
PODMANS = "podman"
# What tells systemd to halt; podman wants its number.
_HALT, _HALT_NUMBER = "SIGRTMIN+3", 37
_LIMITS = {"nofile": 20000, "nproc": 30000}
# Not on the container's own layers, on which no other layers can be put.
_VOLUMES = ("/var/lib/rancher", "/var/lib/kubelet")
_TEMPORARY = {"/run": "rw,nosuid,nodev,exec,mode=755", "/run/lock": "rw,nosuid,nodev,noexec,mode=755"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """`memory` is in bytes, `cpus` in whole processors; 0, an empty network and an empty address say: as it comes."""

    name: str
    image: str
    hostname: str
    command: tuple[str, ...] = ("/sbin/init",)
    labels: Mapping[str, str] = field(default_factory=dict)
    network: str = ""
    address: str = ""
    memory: int = 0
    cpus: float = 0.0


def libpod_spec(wanted: Wanted) -> Obj:
    """For podman's own API."""
    limits: Obj = {}
    if wanted.memory:
        limits["memory"] = {"limit": wanted.memory}
    if wanted.cpus:
        limits["cpu"] = {"period": 100_000, "quota": int(wanted.cpus * 100_000)}
    spec: Obj = {
        "name": wanted.name,
        "image": wanted.image,
        "hostname": wanted.hostname,
        "entrypoint": [],
        "command": list(wanted.command),
        "env": {"container": "podman"},
        "labels": dict(wanted.labels),
        "privileged": True,
        # Its own idea of systemd is one with a control group that is shared.
        "systemd": "false",
        "cgroupns": {"nsmode": "private"},
        "mounts": [
            {"destination": path, "type": "tmpfs", "source": "tmpfs", "options": options.split(",")}
            for path, options in _TEMPORARY.items()
        ],
        "volumes": [{"Name": "", "Dest": path} for path in _VOLUMES],
        "stop_signal": _HALT_NUMBER,
        "r_limits": [{"type": name, "hard": most, "soft": most} for name, most in _LIMITS.items()],
        "restart_policy": "unless-stopped",
        "netns": {"nsmode": "bridge"},
    }
    if wanted.network or wanted.address:
        spec["Networks"] = {wanted.network or PODMANS: {"static_ips": [wanted.address]} if wanted.address else {}}
    if limits:
        spec["resource_limits"] = limits
    return spec


def docker_spec(wanted: Wanted) -> Obj:
    """For Docker's API; the name is not in it."""
    endpoint = {wanted.network: {"IPAMConfig": {"IPv4Address": wanted.address}}} if wanted.network and wanted.address else {}
    return {
        "Image": wanted.image,
        "Hostname": wanted.hostname,
        "Entrypoint": [],
        "Cmd": list(wanted.command),
        "Env": ["container=docker"],
        "Labels": dict(wanted.labels),
        "StopSignal": _HALT,
        "Volumes": {path: {} for path in _VOLUMES},
        "NetworkingConfig": {"EndpointsConfig": endpoint},
        "HostConfig": {
            "Privileged": True,
            "CgroupnsMode": "private",
            "Tmpfs": dict(_TEMPORARY),
            "Ulimits": [{"Name": name, "Soft": most, "Hard": most} for name, most in _LIMITS.items()],
            "RestartPolicy": {"Name": "unless-stopped"},
            "NetworkMode": wanted.network or "bridge",
            "Memory": wanted.memory,
            "NanoCpus": int(wanted.cpus * 1_000_000_000),
        },
    }
