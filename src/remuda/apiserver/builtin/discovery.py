"""discovery.k8s.io: EndpointSlices."""

from __future__ import annotations

import ipaddress

from remuda.kube import names
from remuda.kube.errors import duplicate, invalid_value, required, too_many

from ..registry import object_meta
from ..registry.strategy import AGE, NAME, Strategy, at, column, few
from . import checks
from .checks import Errors, Obj, sub

_CONTROLLERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")


def _default(obj: Obj) -> None:
    for port in obj.get("ports") or ():
        if port.get("name") is None:
            port["name"] = ""
        if port.get("protocol") is None:
            port["protocol"] = "TCP"


def _validate(obj: Obj, old: Obj | None = None) -> Errors:
    errors = checks.meta_errors(obj, True, object_meta.subdomain_name)
    kind = obj.get("addressType") or ""
    errors += checks.supported(kind, ("FQDN", "IPv4", "IPv6"), "addressType")
    errors += _port_errors(obj.get("ports") or [])
    found = _endpoint_errors(obj.get("endpoints") or [], kind)
    if found and old is not None and checks.same(old.get("endpoints"), obj.get("endpoints")):
        return errors
    return errors + found


def _port_errors(ports: list[Obj]) -> Errors:
    if len(ports) > 20000:
        return [too_many("ports", len(ports), 20000)]
    errors: Errors = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"ports[{index}]", port.get("name") or ""
        if name:
            errors += checks.dns_label(name, f"{path}.name")
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
        errors += checks.supported(port.get("protocol") or "", ("SCTP", "TCP", "UDP"), f"{path}.protocol")
        if port.get("appProtocol") is not None:
            errors += checks.qualified(port["appProtocol"], f"{path}.appProtocol")
    return errors


def _endpoint_errors(endpoints: list[Obj], kind: str) -> Errors:
    if len(endpoints) > 1000:
        return [too_many("endpoints", len(endpoints), 1000)]
    errors: Errors = []
    for index, endpoint in enumerate(endpoints):
        path = f"endpoints[{index}]"
        addresses = endpoint.get("addresses") or []
        if not addresses:
            errors.append(required(f"{path}.addresses", "must contain at least 1 address"))
        elif len(addresses) > 100:
            errors.append(too_many(f"{path}.addresses", len(addresses), 100))
        for place, address in enumerate(addresses):
            errors += _address_errors(address, kind, f"{path}.addresses", place)
        if endpoint.get("nodeName") is not None:
            errors += checks.subdomain(endpoint["nodeName"], f"{path}.nodeName")
        topology = endpoint.get("deprecatedTopology") or {}
        if len(topology) > 16:
            errors.append(too_many(f"{path}.deprecatedTopology", len(topology), 16))
        errors += names.label_errors(topology, f"{path}.deprecatedTopology")
        if endpoint.get("hostname") is not None:
            errors += checks.dns_label(endpoint["hostname"], f"{path}.hostname")
        errors += _hint_errors(sub(endpoint, "hints"), f"{path}.hints")
    return errors


def _address_errors(address: str, kind: str, path: str, place: int) -> Errors:
    at_place = f"{path}[{place}]"
    if kind == "FQDN":
        return _domain_errors(address, at_place)
    if kind not in ("IPv4", "IPv6"):
        return []
    errors = checks.ip(address, at_place)
    parsed = checks.parse_ip(address)
    if not errors and kind == "IPv6" and str(parsed) != address:
        errors = [invalid_value(at_place, address, f'must be in canonical form ("{parsed}")')]
    if errors:
        return errors
    family = ipaddress.IPv4Address if kind == "IPv4" else ipaddress.IPv6Address
    if not isinstance(parsed, family):
        errors.append(invalid_value(path, address, f"must be an {kind} address"))
    return errors + checks.endpoint_ip(address, at_place)


def _domain_errors(name: str, path: str) -> Errors:
    if not name:
        return [required(path)]
    plain = name.removesuffix(".")
    problems = names.dns_subdomain_problems(plain)
    if problems:
        return [invalid_value(path, plain, ",".join(problems))]
    if "." not in plain:
        return [invalid_value(path, plain, "should be a domain with at least two segments separated by dots")]
    for label in plain.split("."):
        problems = names.dns_label_problems(label)
        if problems:
            return [invalid_value(path, label, ",".join(problems))]
    return []


def _hint_errors(hints: Obj, path: str) -> Errors:
    errors: Errors = []
    for field, check in (("forZones", names.label_value_problems), ("forNodes", names.dns_subdomain_problems)):
        found = hints.get(field) or []
        if len(found) > 8:
            return [*errors, too_many(f"{path}.{field}", len(found), 8)]
        seen: set[str] = set()
        for index, hint in enumerate(found):
            at_hint, name = f"{path}.{field}[{index}].name", hint.get("name") or ""
            if name in seen:
                errors.append(duplicate(at_hint, name))
            seen.add(name)
            errors += [invalid_value(at_hint, name, why) for why in check(name)]
    return errors


def _update_errors(obj: Obj, old: Obj) -> Errors:
    return _validate(obj, old) + checks.immutable(obj.get("addressType"), old.get("addressType"), "addressType")


def _warnings(obj: Obj, old: Obj | None) -> list[str]:
    found: list[str] = []
    if old is None and obj.get("addressType") == "FQDN":
        found.append("spec.addressType: FQDN endpoints are deprecated")
    managed = (sub(obj, "metadata").get("labels") or {}).get("endpointslice.kubernetes.io/managed-by")
    if managed in _CONTROLLERS:
        return found
    for i, endpoint in enumerate(obj.get("endpoints") or ()):
        for j, address in enumerate(endpoint.get("addresses") or ()):
            found += checks.ip_warnings(address, f"endpoints[{i}].addresses[{j}]")
    return found


def _ports(obj: Obj) -> str:
    def shown(port: Obj) -> str:
        if port.get("port") is not None:
            return str(port["port"])
        return port["name"] if port.get("name") is not None else "*"

    return few([shown(port) for port in obj.get("ports") or ()])


def _addresses(obj: Obj) -> str:
    return few([address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()])


ENDPOINT_SLICE = Strategy(
    default=_default,
    validate=_validate,
    validate_update=_update_errors,
    warnings=_warnings,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        column("AddressType", at("addressType"), "Kind of the addresses."),
        column("Ports", _ports, "Ports, the first few."),
        column("Endpoints", _addresses, "Addresses, the first few."),
        AGE,
    ),
    generation=True,
)
