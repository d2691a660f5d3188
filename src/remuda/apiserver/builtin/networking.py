"""networking.k8s.io: ingresses, their classes, and network policies."""

from __future__ import annotations

import ipaddress
import re

from remuda.kube import names, selectors
from remuda.kube.errors import forbidden_field, invalid_value, not_supported, required, too_long

from ..registry import object_meta
from ..registry.strategy import AGE, NAME, NONE, Strategy, at, column, format_selector
from . import checks
from .checks import Errors, Obj, sub
from .storage import default_marked

_CLASS = "kubernetes.io/ingress.class"
_WILDCARD = re.compile(r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WILDCARD_WHY = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower "
    "case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for "
    r"validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def _host_errors(host: str, path: str) -> Errors:
    if "*" not in host:
        return checks.subdomain(host, path)
    errors: Errors = []
    if len(host) > 253:
        errors.append(invalid_value(path, host, names.max_length_problem(253)))
    return errors if _WILDCARD.fullmatch(host) else [*errors, invalid_value(path, host, _WILDCARD_WHY)]


def _backend_errors(backend: Obj, path: str) -> Errors:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        return [invalid_value(path, "", "cannot set both resource and service backends")]
    if resource is not None:
        return _reference_errors(resource, f"{path}.resource")
    if service is None:
        return [invalid_value(path, "", "resource or service backend is required")]
    name = service.get("name") or ""
    errors = checks.dns_label(name, f"{path}.service.name") if name else [required(f"{path}.service.name")]
    port_name, number = sub(service, "port").get("name") or "", sub(service, "port").get("number") or 0
    if port_name and number:
        errors.append(invalid_value(path, "", "cannot set both port name & port number"))
    elif port_name:
        problems = checks.port_name_problems(port_name)
        errors += [invalid_value(f"{path}.service.port.name", port_name, why) for why in problems]
    elif number:
        errors += checks.port_number(number, f"{path}.service.port.number")
    else:
        errors.append(required(path, "port name or number is required"))
    return errors


def _reference_errors(reference: Obj, path: str) -> Errors:
    errors: Errors = []
    if reference.get("apiGroup") is not None:
        errors += checks.subdomain(reference["apiGroup"], f"{path}.apiGroup")
    for field in ("kind", "name"):
        value = reference.get(field) or ""
        if not value:
            errors.append(required(f"{path}.{field}"))
        errors += [invalid_value(f"{path}.{field}", value, why) for why in names.path_segment_problems(value)]
    return errors


def _path_errors(each: Obj, path: str) -> Errors:
    kind, where = each.get("pathType"), each.get("path") or ""
    if kind is None:
        return [required(f"{path}.pathType", "pathType must be specified")]
    at_path = f"{path}.path"
    errors: Errors = []
    if kind in ("Exact", "Prefix"):
        if not where.startswith("/"):
            errors.append(invalid_value(at_path, where, "must be an absolute path"))
        for text in ("//", "/./", "/../", "%2f", "%2F"):
            if text in where:
                errors.append(invalid_value(at_path, where, f"must not contain '{text}'"))
        for text in ("/..", "/."):
            if where.endswith(text):
                errors.append(invalid_value(at_path, where, f"cannot end with '{text}'"))
    elif kind == "ImplementationSpecific":
        if where and not where.startswith("/"):
            errors.append(invalid_value(at_path, where, "must be an absolute path"))
    else:
        errors.append(not_supported(f"{path}.pathType", kind, ("Exact", "ImplementationSpecific", "Prefix")))
    return errors + _backend_errors(sub(each, "backend"), f"{path}.backend")


def _ingress_errors(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    errors = checks.meta_errors(obj, True, object_meta.subdomain_name)
    rules = spec.get("rules") or []
    if not rules and spec.get("defaultBackend") is None:
        errors.append(invalid_value("spec", rules or None, "either `defaultBackend` or `rules` must be specified"))
    if spec.get("defaultBackend") is not None:
        errors += _backend_errors(spec["defaultBackend"], "spec.defaultBackend")
    for index, rule in enumerate(rules):
        path, host = f"spec.rules[{index}]", rule.get("host") or ""
        if host:
            if checks.parse_ip(host) is not None:
                errors.append(invalid_value(f"{path}.host", host, "must be a DNS name, not an IP address"))
            errors += _host_errors(host, f"{path}.host")
        if rule.get("http") is not None:
            paths = rule["http"].get("paths") or []
            if not paths:
                errors.append(required(f"{path}.http.paths"))
            for place, each in enumerate(paths):
                errors += _path_errors(each, f"{path}.http.paths[{place}]")
    for index, tls in enumerate(spec.get("tls") or ()):
        for place, host in enumerate(tls.get("hosts") or ()):
            errors += _host_errors(host, f"spec.tls[{index}].hosts[{place}]")
        if tls.get("secretName"):
            errors += checks.subdomain(tls["secretName"], f"spec.tls[{index}].secretName")
    if spec.get("ingressClassName") is not None:
        errors += checks.subdomain(spec["ingressClassName"], "spec.ingressClassName")
    return errors


def _new_ingress_errors(obj: Obj) -> Errors:
    errors = _ingress_errors(obj)
    annotation = (sub(obj, "metadata").get("annotations") or {}).get(_CLASS)
    name = sub(obj, "spec").get("ingressClassName")
    if annotation is not None and name is not None and annotation != name:
        why = "must match `ingressClassName` when both are specified"
        errors.append(invalid_value(f"annotations.{_CLASS}", annotation, why))
    return errors


def _ingress_status_errors(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old)
    known = [each.get("ip") or "" for each in sub(old, "status", "loadBalancer").get("ingress") or ()]
    for index, each in enumerate(sub(obj, "status", "loadBalancer").get("ingress") or ()):
        path, address, host = f"status.loadBalancer.ingress[{index}]", each.get("ip") or "", each.get("hostname") or ""
        errors += checks.ip(address, f"{path}.ip", known) if address else []
        if host:
            errors += checks.subdomain(host, f"{path}.hostname")
            if checks.parse_ip(host) is not None:
                errors.append(invalid_value(f"{path}.hostname", host, "must be a DNS name, not an IP address"))
    return errors


def _ingress_warnings(obj: Obj, old: Obj | None) -> list[str]:
    if old is None and _CLASS in (sub(obj, "metadata").get("annotations") or {}):
        return [f"annotation \"{_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"]
    return []


def _hosts(obj: Obj) -> str:
    rules = sub(obj, "spec").get("rules") or []
    found: list[str] = []
    more = False
    for rule in rules:
        more = more or len(found) == 3
        if not more and rule.get("host"):
            found.append(rule["host"])
    if not found:
        return "*"
    return ",".join(found) + (f" + {len(rules) - 3} more..." if more else "")


def _address(obj: Obj) -> str:
    ingress = sub(obj, "status", "loadBalancer").get("ingress") or ()
    return ",".join(sorted({each.get("ip") or each.get("hostname") or "" for each in ingress} - {""}))


INGRESS = Strategy(
    prepare_for_create=checks.fresh_status(loadBalancer={}),
    validate=_new_ingress_errors,
    prepare_for_update=checks.keep_status,
    validate_update=lambda obj, old: checks.meta_update_errors(obj, old) + _ingress_errors(obj),
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=_ingress_status_errors,
    warnings=_ingress_warnings,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        column("Class", at("spec", "ingressClassName", default=NONE), "The class of its controller."),
        column("Hosts", _hosts, "Hosts it answers for, the first few."),
        column("Address", _address, "The address of the load balancer."),
        column("Ports", lambda obj: "80, 443" if sub(obj, "spec").get("tls") else "80", "Ports it is reached at."),
        AGE,
    ),
    generation=True,
)


def _default_class(obj: Obj) -> None:
    parameters = sub(obj, "spec").get("parameters")
    if parameters is not None and parameters.get("scope") is None:
        parameters["scope"] = "Cluster"


def _class_errors(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    errors = checks.meta_errors(obj, False, object_meta.subdomain_name)
    controller = spec.get("controller") or ""
    if len(controller) > 250:
        errors.append(too_long("spec.controller", 250))
    errors += checks.domain_prefixed_path(controller, "spec.controller")
    parameters = spec.get("parameters")
    if parameters is None:
        return errors
    path = "spec.parameters"
    errors += _reference_errors(parameters, path)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        return [*errors, required(f"{path}.scope")]
    if scope not in ("Cluster", "Namespace"):
        return [*errors, not_supported(f"{path}.scope", scope, ("Cluster", "Namespace"))]
    if scope == "Namespace" and not namespace:
        errors.append(required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'"))
    elif scope == "Namespace":
        errors += checks.dns_label(namespace, f"{path}.namespace")
    elif namespace is not None:
        errors.append(forbidden_field(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'"))
    return errors


def _class_update_errors(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old)
    new, before = sub(obj, "spec").get("controller") or "", sub(old, "spec").get("controller") or ""
    return errors + checks.immutable(new, before, "spec.controller") + _class_errors(obj)


def _parameters(obj: Obj) -> str:
    parameters = sub(obj, "spec").get("parameters")
    if parameters is None:
        return NONE
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") is not None else ""
    return f"{parameters.get('kind') or ''}{group}/{parameters.get('name') or ''}"


INGRESS_CLASS = Strategy(
    default=_default_class,
    validate=_class_errors,
    validate_update=_class_update_errors,
    name_problems=object_meta.subdomain_name,
    columns=(
        default_marked(("ingressclass.kubernetes.io/is-default-class",)),
        column("Controller", at("spec", "controller"), "The controller of ingresses of this class."),
        column("Parameters", _parameters, "The reference to the controller's settings."),
        AGE,
    ),
    generation=True,
)


# ---------------------------------------------------------------------------------------------------------------------
# Network policies


def _default_policy(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    for field in ("ingress", "egress"):
        for rule in spec.get(field) or ():
            for port in rule.get("ports") or ():
                if port.get("protocol") is None:
                    port["protocol"] = "TCP"
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _policy_port_errors(port: Obj, path: str) -> Errors:
    protocol, number, end = port.get("protocol"), port.get("port"), port.get("endPort")
    errors: Errors = []
    if protocol is not None and protocol not in ("TCP", "UDP", "SCTP"):
        errors.append(not_supported(f"{path}.protocol", protocol, ("TCP", "UDP", "SCTP")))
    if number is None:
        why = "may not be specified when `port` is not specified"
        return [*errors, invalid_value(f"{path}.endPort", end, why)] if end is not None else errors
    if isinstance(number, str):
        if end is not None:
            errors.append(invalid_value(f"{path}.endPort", end, "may not be specified when `port` is non-numeric"))
        return errors + checks.port_or_name(number, f"{path}.port")
    errors += checks.port_number(number, f"{path}.port")
    if end is not None:
        if end < number:
            errors.append(invalid_value(f"{path}.endPort", number, "must be greater than or equal to `port`"))
        errors += checks.port_number(end, f"{path}.endPort")
    return errors


def _peer_errors(peer: Obj, known: list[str], path: str) -> Errors:
    errors: Errors = []
    for field in ("podSelector", "namespaceSelector"):
        errors += selectors.structure_errors(peer.get(field), f"{path}.{field}")
    block = peer.get("ipBlock")
    if block is not None:
        errors += _block_errors(block, known, f"{path}.ipBlock")
    found = sum(peer.get(field) is not None for field in ("podSelector", "namespaceSelector", "ipBlock"))
    if not found:
        errors.append(required(path, "must specify a peer"))
    elif found > 1 and block is not None:
        errors.append(forbidden_field(path, "may not specify both ipBlock and another peer"))
    return errors


def _block_errors(block: Obj, known: list[str], path: str) -> Errors:
    value = block.get("cidr") or ""
    if not value:
        return [required(f"{path}.cidr")]
    errors = checks.cidr(value, f"{path}.cidr", known)
    if errors:
        return errors
    network = ipaddress.ip_network(value, strict=False)
    for index, each in enumerate(block.get("except") or ()):
        at_each = f"{path}.except[{index}]"
        found = checks.cidr(each, at_each, known)
        errors += found
        if found:
            continue
        inner = ipaddress.ip_network(each, strict=False)
        inside = inner.version == network.version and inner.network_address in network
        if not inside or network.prefixlen >= inner.prefixlen:
            errors.append(invalid_value(at_each, each, "must be a strict subset of `cidr`"))
    return errors


def _known_ranges(spec: Obj) -> list[str]:
    found: list[str] = []
    for field, peers in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(field) or ():
            for peer in rule.get(peers) or ():
                block = peer.get("ipBlock") or {}
                found += [block.get("cidr") or "", *(block.get("except") or ())]
    return found


def _policy_errors(obj: Obj, known: list[str]) -> Errors:
    spec = sub(obj, "spec")
    errors = selectors.structure_errors(spec.get("podSelector"), "spec.podSelector")
    for field, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(field) or ()):
            path = f"spec.{field}[{index}]"
            for place, port in enumerate(rule.get("ports") or ()):
                errors += _policy_port_errors(port, f"{path}.ports[{place}]")
            for place, peer in enumerate(rule.get(peers) or ()):
                errors += _peer_errors(peer, known, f"{path}.{peers}[{place}]")
    kinds = spec.get("policyTypes") or []
    if len(kinds) > 2:
        return [*errors, invalid_value("spec.policyTypes", kinds, "may not specify more than two policyTypes")]
    for index, kind in enumerate(kinds):
        if kind not in ("Ingress", "Egress"):
            errors.append(not_supported(f"spec.policyTypes[{index}]", kind, ("Ingress", "Egress")))
    return errors


NETWORK_POLICY = Strategy(
    default=_default_policy,
    validate=lambda obj: checks.meta_errors(obj, True, object_meta.subdomain_name) + _policy_errors(obj, []),
    validate_update=lambda obj, old: checks.meta_update_errors(obj, old) + _policy_errors(obj, _known_ranges(sub(old, "spec"))),
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        column("Pod-Selector", lambda obj: format_selector(sub(obj, "spec").get("podSelector") or {}), "Pods it is about."),
        AGE,
    ),
    generation=True,
)
