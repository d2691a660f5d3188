"""Who holds which service address and node port: the stored services, and the writes that are under way.

:mod:`.service_addresses` chooses; this remembers. A write reserves what it was given until its service is in the watch cache
(or the write has failed), so that two at the same time never get the same. That holds for one server; where several share a
store, :func:`guards_of` says which keys they have to win (:mod:`remuda.apiserver.replicas.allocation_locks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from remuda.kube.object_reader import ObjectSource

from ...replicas.allocation_locks import guard
from ..checks import Obj, sub
from .service_addresses import SERVICE_RANGE, InUse, allocate


class ServiceLedger:
    def __init__(self, source: ObjectSource, service_range: str = SERVICE_RANGE) -> None:
        self._range = service_range
        self._addresses: Counter[str] = Counter()
        self._ports: Counter[int] = Counter()
        source.subscribe("", "services", self._changed)

    @contextmanager
    def reserve(self, obj: Obj, old: Obj | None, dry_run: bool) -> Iterator[None]:
        """Give `obj` what it asks for or lacks, and keep it from others while the block runs."""
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
    """The keys in a shared store that only one service may have."""
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
