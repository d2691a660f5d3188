"""Which ports the group `rancher-nodes` opens, and which of them a group lacks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import DriverError, Reason

EVERYWHERE = "0.0.0.0/0"
# first port, last port, protocol, and whether from everywhere or only from the group's own machines
_NODES: tuple[tuple[int, int, str, bool], ...] = (
    (22, 22, "tcp", True),
    (2376, 2376, "tcp", True),
    (8443, 8443, "tcp", True),  # webhook
    (6443, 6443, "tcp", True),  # Kubernetes API
    (9345, 9345, "tcp", False),  # RKE2's supervisor
    (2379, 2380, "tcp", False),  # etcd
    (4789, 4789, "udp", False),  # VXLAN
    (5473, 5473, "tcp", False),  # Typha
    (8472, 8472, "udp", False),  # flannel
    (10250, 10252, "tcp", False),  # kubelet and others
    (10256, 10256, "tcp", False),  # kube-proxy
    (9796, 9796, "tcp", False),  # node exporter
    (30000, 32767, "tcp", True),  # node ports
    (30000, 32767, "udp", True),
    (80, 80, "tcp", True),
    (443, 443, "tcp", True),
    (179, 179, "tcp", False),  # Calico
)


def missing(group: Mapping[str, Any], open_ports: Iterable[str], *, nodes: bool) -> list[dict[str, Any]]:
    """Permissions to add to a group as EC2 describes it; `nodes` says that it shall have the rules above."""
    there = {(rule.get("FromPort"), rule.get("IpProtocol")) for rule in group.get("IpPermissions") or ()}
    wanted = [*(_NODES if nodes else ()), *(_opened(port) for port in open_ports)]
    found: list[dict[str, Any]] = []
    for first, last, protocol, public in wanted:
        if (first, protocol) in there:
            continue
        there.add((first, protocol))
        source: dict[str, Any] = (
            {"IpRanges": [{"CidrIp": EVERYWHERE}]} if public else {"UserIdGroupPairs": [{"GroupId": group["GroupId"]}]}
        )
        found.append({"IpProtocol": protocol, "FromPort": first, "ToPort": last, **source})
    return found


def _opened(said: str) -> tuple[int, int, str, bool]:
    port, _, protocol = said.partition("/")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise DriverError(Reason.INVALID, f"{said!r} is no port: say 8080 or 8080/udp", field="openPort")
    return int(port), int(port), protocol or "tcp", True
