"""Endpoints: addresses behind a service. (Their successor is discovery.k8s.io's EndpointSlice.)"""

from __future__ import annotations

from remuda.kube.errors import required

from ...registry import object_meta
from ...registry.strategy import AGE, NAME, NONE, Strategy, column
from .. import checks
from ..checks import PROTOCOLS, Errors, Obj, sub


def _default(obj: Obj) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            port.setdefault("protocol", "TCP")


def _validate(obj: Obj, old: Obj | None = None) -> Errors:
    errors = checks.meta_errors(obj, True, object_meta.subdomain_name)
    subsets = obj.get("subsets") or []
    found = [error for index, subset in enumerate(subsets) for error in _subset_errors(subset, f"subsets[{index}]")]
    if found and old is not None and checks.same(old.get("subsets"), subsets):
        return errors
    return errors + found


def _subset_errors(subset: Obj, path: str) -> Errors:
    errors: Errors = []
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
    for field in ("addresses", "notReadyAddresses"):
        for index, address in enumerate(subset.get(field) or ()):
            errors += _address_errors(address, f"{path}.{field}[{index}]")
    ports = subset.get("ports") or []
    for index, port in enumerate(ports):
        errors += _port_errors(port, len(ports) > 1, f"{path}.ports[{index}]")
    return errors


def _address_errors(address: Obj, path: str) -> Errors:
    value = address.get("ip") or ""
    errors = checks.ip(value, f"{path}.ip")
    if address.get("hostname"):
        errors += checks.dns_label(address["hostname"], f"{path}.hostname")
    if address.get("nodeName") is not None:
        errors += checks.subdomain(address["nodeName"], f"{path}.nodeName")
    return errors + checks.endpoint_ip(value, f"{path}.ip")


def _port_errors(port: Obj, name_required: bool, path: str) -> Errors:
    errors: Errors = []
    if port.get("name"):
        errors += checks.dns_label(port["name"], f"{path}.name")
    elif name_required:
        errors.append(required(f"{path}.name"))
    errors += checks.port_number(port.get("port"), f"{path}.port")
    errors += checks.supported(port.get("protocol") or "", PROTOCOLS, f"{path}.protocol")
    if port.get("appProtocol") is not None:
        errors += checks.qualified(port["appProtocol"], f"{path}.appProtocol")
    return errors


def _warnings(obj: Obj, old: Obj | None) -> list[str]:
    labels = sub(obj, "metadata").get("labels") or {}
    if labels.get("endpoints.kubernetes.io/managed-by") == "endpoints-controller":
        return []
    return [
        warning
        for i, subset in enumerate(obj.get("subsets") or ())
        for field in ("addresses", "notReadyAddresses")
        for j, address in enumerate(subset.get(field) or ())
        for warning in checks.ip_warnings(address.get("ip") or "", f"subsets[{i}].{field}[{j}].ip")
    ]


def _shown(obj: Obj) -> str:
    subsets = obj.get("subsets") or []
    if not subsets:
        return NONE
    listed: list[str] = []
    for subset in subsets:
        addresses = [address.get("ip") or "" for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or []
        listed += addresses if not ports else [_host_port(ip, port["port"]) for port in ports for ip in addresses]
    text = ",".join(listed[:3])
    return f"{text} + {len(listed) - 3} more..." if len(listed) > 3 else text


def _host_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


STRATEGY = Strategy(
    default=_default,
    validate=_validate,
    validate_update=lambda obj, old: checks.meta_update_errors(obj, old) + _validate(obj, old),
    warnings=_warnings,
    name_problems=object_meta.subdomain_name,
    columns=(NAME, column("Endpoints", _shown, "Addresses and ports, the first few."), AGE),
    allow_create_on_update=True,
)
