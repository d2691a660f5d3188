"""The addresses of a node: from its registration, or from the driver that made the machine
(docs/reference/node-plan.md#addresses).

`node-ip` is the address inside the cluster, `node-external-ip` the one for clients outside.
"""

from __future__ import annotations

import io
import ipaddress
import tarfile
from collections.abc import Iterable
from typing import Any

from remuda.kube.encoding import jsonio
from remuda.kube.waits import Actor

from ... import well_known
from ..snapshot import CannotRender
from .context import Config, HostContext, mapping, strings
from .plan_inputs import Driver

CUSTOM = "CustomMachine"
# The pod driver reports addresses that are not the machine's.
_WITHOUT_ADDRESSES = "pod"
# Its machines have one address unless private networking is on, and that one must be set.
_OUTSIDE_IS_INSIDE = "digitalocean"
_LARGEST_CONFIG = 1 << 20


def add(host: HostContext, config: Config) -> None:
    """Add the addresses of a host to `config`."""
    found = _known(host)
    outside = _listed(found.address)
    if found.name == _WITHOUT_ADDRESSES:
        return
    inside = _listed(found.private_address) or (outside if found.name == _OUTSIDE_IS_INSIDE else [])
    node = _in_order([*strings(config.get("node-ip")), *inside, *_listed(found.ipv6_address)], _first_cidr(config))
    others = [address for address in outside if address not in node and not _is_link_local(address)]
    config["node-ip"] = node
    if not node or not others:
        return
    if not config.get("cloud-provider-name"):
        config["node-external-ip"] = others
    if host.is_server:
        config["advertise-address"] = node[0]
        config["tls-san"] = _once([*strings(config.get("tls-san")), *others])


def driver_of(archive: bytes) -> Driver | None:
    """The addresses in a machine's saved state (a tar.gz); None while it has none."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as files:
            for member in files:
                if member.isfile() and _is_machine_config(member.name) and member.size <= _LARGEST_CONFIG:
                    found = files.extractfile(member)
                    return _driver(found.read()) if found else None
    except (tarfile.TarError, OSError, EOFError):
        return None
    return None


def _known(host: HostContext) -> Driver:
    """The addresses in the form of a driver's; a host that registered by itself has comma-separated lists instead."""
    inside, outside = (host.annotations.get(key, "") for key in (well_known.INTERNAL_ADDRESS, well_known.ADDRESS))
    if inside or outside:
        return Driver(address=outside, private_address=inside)
    if host.machine.infrastructure_kind == CUSTOM or host.cluster.layout.own_address:
        return Driver(private_address=host.cluster.layout.own_address)
    driver = host.cluster.facts.drivers.get(host.machine.name)
    if driver is None:
        at = f"{host.machine.namespace}/{host.machine.name}"
        raise CannotRender(f"waiting for machine {at} driver config to be saved", Actor.PROVIDER, host.machine.ref())
    return driver


def _listed(text: str) -> list[str]:
    return _once(part.strip() for part in text.split(",") if part.strip())


def _once(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))


def _first_cidr(config: Config) -> str:
    said = strings(config.get("service-cidr"))
    return said[0].partition(",")[0].strip() if said else ""


def _in_order(addresses: list[str], cidr: str) -> list[str]:
    """The family of the services' first network comes first: a node's first address is its main one."""
    found = _once(addresses)
    if not cidr:
        return found
    wants_six = ":" in cidr
    return sorted(found, key=lambda address: (":" in address) is not wants_six)


def _is_link_local(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_link_local
    except ValueError:
        return False


def _is_machine_config(name: str) -> bool:
    return "machines/" in name and name.endswith("/config.json")


def _driver(data: bytes) -> Driver | None:
    try:
        said: Any = jsonio.loads(data)
    except jsonio.JsonError:
        return None
    state = mapping(mapping(said).get("Driver"))
    made = Driver(
        str(mapping(said).get("DriverName") or ""),
        *(str(state.get(key) or "") for key in ("IPAddress", "PrivateIPAddress", "IPv6Address")),
    )
    return made if made.name else None
