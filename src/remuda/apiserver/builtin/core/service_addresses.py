"""Addresses and node ports for services, from a range.

:meth:`ServiceLedger.reserve` calls :func:`allocate` before a service is prepared and validated, with the other services'
addresses and ports. The choice follows from the service's uid, so that addresses are spread over the range and a search is
short.
"""

from __future__ import annotations

import ipaddress
import zlib
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass

from remuda.kube.errors import ApiError, internal, invalid, invalid_value
from remuda.kube.objects import ObjectSource

from ...replicas.allocation_locks import guard
from ..checks import Obj, sub
from .service import cluster_ip_errors, needs_cluster_ip, needs_health_check

SERVICE_RANGE = "10.96.0.0/16"
NODE_PORTS = range(30000, 32768)


@dataclass(frozen=True, slots=True)
class InUse:
    """Addresses and node ports of other services."""

    addresses: AbstractSet[str]
    node_ports: AbstractSet[int]


def allocate(obj: Obj, old: Obj | None, used: InUse, service_range: str = SERVICE_RANGE, dry_run: bool = False) -> None:
    """Gives `obj` the addresses and ports that it requests or lacks; raises when one is not available.

    As in kube-apiserver, a dry run does not check whether an address is taken, and has another error for one out of range.
    """
    spec = obj.setdefault("spec", {})
    before = sub(old, "spec") if old is not None else None
    _normalize(spec, before)
    if needs_cluster_ip(spec):
        _set_families(obj, spec, before)
        _set_addresses(obj, spec, before, used, ipaddress.IPv4Network(service_range), dry_run)
    _set_node_ports(obj, spec, before, used)


def _refuse(obj: Obj, path: str, value: object, why: str) -> ApiError:
    return invalid("", "Service", sub(obj, "metadata").get("name") or "", [invalid_value(path, value, why)])


def _normalize(spec: Obj, before: Obj | None) -> None:
    """Keeps clusterIP and clusterIPs consistent, also for a writer that sets only the first one."""
    if before is None:
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        return
    if needs_cluster_ip(before) and needs_cluster_ip(spec):
        if not spec.get("clusterIP") and before.get("clusterIP"):
            spec["clusterIP"] = before["clusterIP"]
        if not spec.get("clusterIPs") and before.get("clusterIPs"):
            spec["clusterIPs"] = before["clusterIPs"]
    _keep_node_ports(spec, before)
    moved = spec.get("clusterIP") and spec.get("clusterIP") != before.get("clusterIP")
    if moved and (spec.get("clusterIPs") or []) == (before.get("clusterIPs") or []):
        spec["clusterIPs"] = [spec["clusterIP"]]


def _keep_node_ports(spec: Obj, before: Obj) -> None:
    kinds = ("NodePort", "LoadBalancer")
    if spec.get("type") not in kinds or before.get("type") not in kinds:
        return
    # By name: a port keeps its number when its other fields change.
    known = {port.get("name") or "": port.get("nodePort") for port in before.get("ports") or ()}
    wanted = {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}
    for port in spec.get("ports") or ():
        kept = known.get(port.get("name") or "")
        if not port.get("nodePort") and kept and kept not in wanted:
            port["nodePort"] = kept
    if needs_health_check(spec) and needs_health_check(before) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = before.get("healthCheckNodePort")


def _set_families(obj: Obj, spec: Obj, before: Obj | None) -> None:
    headless_without_selector = spec.get("clusterIP") == "None" and not spec.get("selector")
    if not spec.get("ipFamilyPolicy"):
        kept = (before or {}).get("ipFamilyPolicy")
        spec["ipFamilyPolicy"] = kept or ("RequireDualStack" if headless_without_selector else "SingleStack")
    errors = cluster_ip_errors(spec, before)
    if errors:
        raise invalid("", "Service", sub(obj, "metadata").get("name") or "", errors)
    policy = spec["ipFamilyPolicy"]
    families = list(spec.get("ipFamilies") or ())
    if not families and before is not None and before.get("ipFamilies") and needs_cluster_ip(before):
        families = list(before["ipFamilies"])
    if headless_without_selector:
        families = families or ["IPv4"]
        if len(families) < 2 and policy != "SingleStack":
            families.append("IPv6" if families[0] == "IPv4" else "IPv4")
        spec["ipFamilies"] = families
        return
    found = []
    if policy == "RequireDualStack":
        why = "this cluster is not configured for dual-stack services"
        found.append(invalid_value("spec.ipFamilyPolicy", policy, why))
    for index, family in enumerate(families):
        if family != "IPv4":
            found.append(invalid_value(f"spec.ipFamilies[{index}]", family, "not configured on this cluster"))
    if found:
        raise invalid("", "Service", sub(obj, "metadata").get("name") or "", found)
    for index, address in enumerate(spec.get("clusterIPs") or ()):
        if ":" in address:
            why = "IPv6 is not configured on this cluster"
            raise _refuse(obj, f"spec.clusterIPs[{index}]", spec["clusterIPs"], why)
    spec["ipFamilies"] = families or ["IPv4"]


def _set_addresses(obj: Obj, spec: Obj, before: Obj | None, used: InUse, network: ipaddress.IPv4Network, dry_run: bool) -> None:
    addresses = spec.get("clusterIPs") or []
    if addresses == ["None"]:
        return
    held = set((before or {}).get("clusterIPs") or ())
    if addresses:
        if addresses[0] in held:
            return
        parsed = ipaddress.ip_address(addresses[0])
        if parsed not in network or parsed in (network.network_address, network.broadcast_address):
            why = "the provided network does not match the current range"
            if dry_run:
                why = f"the provided IP ({addresses[0]}) is not in the valid range. The range of valid IPs is {network}"
            raise _refuse(obj, "spec.clusterIPs", addresses, f"failed to allocate IP {addresses[0]}: {why}")
        if addresses[0] in used.addresses and not dry_run:
            why = f"failed to allocate IP {addresses[0]}: provided IP is already allocated"
            raise _refuse(obj, "spec.clusterIPs", addresses, why)
        return
    chosen = _free_address(network, used.addresses, sub(obj, "metadata").get("uid") or "")
    if chosen is None:
        name = sub(obj, "metadata").get("name") or ""
        raise internal(f'failed to allocate a serviceIP for Service "{name}": range is full')
    spec["clusterIP"], spec["clusterIPs"] = chosen, [chosen]


def _free_address(network: ipaddress.IPv4Network, used: AbstractSet[str], seed: str) -> str | None:
    # The lowest 16th, at most 256, is reserved for addresses that users choose.
    usable = network.num_addresses - 2
    reserved = min(max(16, network.num_addresses // 16), 256) if usable > 16 else 0
    span = usable - reserved
    start = zlib.crc32(seed.encode()) % span
    for step in range(span):
        candidate = str(network.network_address + 1 + reserved + (start + step) % span)
        if candidate not in used:
            return candidate
    return None


def _set_node_ports(obj: Obj, spec: Obj, before: Obj | None, used: InUse) -> None:
    held = {port.get("nodePort") for port in (before or {}).get("ports") or ()} | {(before or {}).get("healthCheckNodePort")}
    taken = set(used.node_ports)
    seed = zlib.crc32((sub(obj, "metadata").get("uid") or "").encode())
    kind = spec.get("type")
    if kind == "NodePort" or kind == "LoadBalancer":
        by_port: dict[int, int] = {}
        for index, port in enumerate(spec.get("ports") or ()):
            wanted = port.get("nodePort") or 0
            if wanted:
                if wanted not in held and by_port.get(port.get("port")) != wanted:
                    _claim(obj, wanted, taken, f"spec.ports[{index}].nodePort")
            elif kind == "NodePort" or spec.get("allocateLoadBalancerNodePorts"):
                wanted = by_port.get(port.get("port")) or _free_port(taken, seed)
                port["nodePort"] = wanted
            if wanted:
                by_port[port.get("port")] = wanted
                taken.add(wanted)
    if needs_health_check(spec):
        if not spec.get("healthCheckNodePort"):
            spec["healthCheckNodePort"] = _free_port(taken, seed)
        elif spec["healthCheckNodePort"] not in held and spec["healthCheckNodePort"] in taken:
            port = spec["healthCheckNodePort"]
            raise internal(f"failed to allocate requested HealthCheck NodePort {port}: provided port is already allocated")


def _claim(obj: Obj, port: int, taken: set[int], path: str) -> None:
    if port not in NODE_PORTS:
        why = f"provided port is not in the valid range. The range of valid ports is {NODE_PORTS[0]}-{NODE_PORTS[-1]}"
        raise _refuse(obj, path, port, why)
    if port in taken:
        raise _refuse(obj, path, port, "provided port is already allocated")


def _free_port(taken: set[int], seed: int) -> int:
    # The lowest ones are reserved for ports that users choose, as long as others are free.
    reserved = min(max(16, len(NODE_PORTS) // 32), 128)
    for ports in (NODE_PORTS[reserved:], NODE_PORTS[:reserved]):
        for step in range(len(ports)):
            candidate = ports[(seed + step) % len(ports)]
            if candidate not in taken:
                taken.add(candidate)
                return candidate
    raise internal("failed to allocate a nodePort: range is full")


# --- service allocations --------------------------------------------------------------------------------------------------
#
# The service addresses and node ports in use: by stored services, and by writes in progress.
#
# A write reserves its allocations until its service is in the watch cache (or the write has failed), so that two concurrent
# writes never get the same. That holds for one server; where several share a store, :func:`guards_of` names the keys that a
# write has to acquire (:mod:`remuda.apiserver.replicas.allocation_locks`).


class ServiceLedger:
    def __init__(self, source: ObjectSource, service_range: str = SERVICE_RANGE) -> None:
        self._range = service_range
        self._addresses: Counter[str] = Counter()
        self._ports: Counter[int] = Counter()
        source.subscribe("", "services", self._changed)

    @contextmanager
    def reserve(self, obj: Obj, old: Obj | None, dry_run: bool) -> Iterator[None]:
        """Allocate for `obj`, and reserve its addresses and ports while the block runs."""
        allocate(obj, old, InUse(self._addresses.keys(), self._ports.keys()), self._range, dry_run)
        addresses, ports = _held(obj)
        self._count(addresses, ports, 1)
        try:
            yield
        finally:
            self._count(addresses, ports, -1)

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None:
            self._count(*_held(new), 1)
        if old is not None:
            self._count(*_held(old), -1)

    def _count(self, addresses: list[str], ports: list[int], step: int) -> None:
        for address in addresses:
            self._addresses[address] += step
            if not self._addresses[address]:
                del self._addresses[address]
        for port in ports:
            self._ports[port] += step
            if not self._ports[port]:
                del self._ports[port]


def guards_of(service: Obj | None) -> frozenset[str]:
    """The keys in a shared store that only one service may hold."""
    if service is None:
        return frozenset()
    addresses, ports = _held(service)
    return frozenset([guard("serviceips", address) for address in addresses] + [guard("nodeports", port) for port in ports])


def _held(service: Obj) -> tuple[list[str], list[int]]:
    spec = sub(service, "spec")
    addresses = [address for address in spec.get("clusterIPs") or () if address != "None"]
    ports = [port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")]
    if spec.get("healthCheckNodePort"):
        ports.append(spec["healthCheckNodePort"])
    return addresses, ports
