"""Services: types, ports and addresses. Allocation of addresses and node ports is in :mod:`.service_addresses`."""

from __future__ import annotations

from remuda.kube import names
from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import duplicate, forbidden_field, invalid_value, not_supported, required

from ...registry import object_meta
from ...registry.strategy import AGE, NAME, NONE, UNKNOWN, Strategy, at, column, format_labels
from .. import checks
from ..checks import PROTOCOLS, Errors, Obj, sub

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_HINTS, _MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_ONLY_BALANCER = "may only be used when `type` is 'LoadBalancer'"
_ONCE = "may not change once set"


def is_headless(spec: Obj) -> bool:
    return spec.get("clusterIPs") == ["None"]


def externally_accessible(spec: Obj) -> bool:
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def needs_health_check(spec: Obj) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def needs_cluster_ip(spec: Obj) -> bool:
    return spec.get("type") != "ExternalName"


def _default(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP" and sub(spec, "sessionAffinityConfig", "clientIP").get("timeoutSeconds") is None:
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    spec["type"] = spec.get("type") or "ClusterIP"
    for port in spec.get("ports") or ():
        port["protocol"] = port.get("protocol") or "TCP"
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port") or 0
    if externally_accessible(spec) and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if spec.get("internalTrafficPolicy") is None and spec["type"] in ("NodePort", "LoadBalancer", "ClusterIP"):
        spec["internalTrafficPolicy"] = "Cluster"
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for ingress in sub(obj, "status", "loadBalancer").get("ingress") or ():
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def _prepare_for_create(obj: Obj) -> None:
    obj["status"] = {"loadBalancer": {}}
    _drop_internal_policy(obj.setdefault("spec", {}))


def _drop_internal_policy(spec: Obj) -> None:
    """An ExternalName has no internal traffic policy. Not done in defaulting: the field's writer stays its owner."""
    if spec.get("type") == "ExternalName":
        spec.pop("internalTrafficPolicy", None)


def _prepare_for_update(obj: Obj, old: Obj) -> None:
    checks.keep_status(obj, old)
    spec, before = obj.setdefault("spec", {}), sub(old, "spec")
    _drop_by_type(spec, before)
    _drop_internal_policy(spec)
    if spec.get("type") != "LoadBalancer":
        obj["status"] = {**sub(obj, "status"), "loadBalancer": {}}


def _drop_by_type(spec: Obj, before: Obj) -> None:
    """Drops fields that the new type can't have, if the writer did not change them."""

    def drop_same(*fields: str) -> None:
        for field in fields:
            if spec.get(field) == before.get(field):
                spec.pop(field, None)

    if needs_cluster_ip(before) and not needs_cluster_ip(spec):
        if all(spec.get(field) == before.get(field) for field in ("clusterIP", "clusterIPs")):
            spec.pop("clusterIP", None)
            spec.pop("clusterIPs", None)
        drop_same("ipFamilies", "ipFamilyPolicy")
    with_ports = ("NodePort", "LoadBalancer")
    if before.get("type") in with_ports and spec.get("type") not in with_ports:
        old_ports = {port.get("nodePort") for port in before.get("ports") or ()}
        new_ports = {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}
        if new_ports <= old_ports:
            for port in spec.get("ports") or ():
                port.pop("nodePort", None)
    if needs_health_check(before) and not needs_health_check(spec):
        drop_same("healthCheckNodePort")
    if before.get("type") == "LoadBalancer" and spec.get("type") != "LoadBalancer":
        drop_same("allocateLoadBalancerNodePorts", "loadBalancerClass")
    if externally_accessible(before) and not externally_accessible(spec):
        drop_same("externalTrafficPolicy")


# ---------------------------------------------------------------------------------------------------------------------
# Validation


def _service_errors(obj: Obj, old: Obj | None) -> Errors:
    spec = sub(obj, "spec")
    errors = _annotation_errors(obj) + _type_errors(spec)
    ports, seen = spec.get("ports") or [], set[str]()
    for index, port in enumerate(ports):
        errors += _port_errors(port, len(ports) > 1, seen, f"spec.ports[{index}]")
    errors += names.label_errors(spec.get("selector"), "spec.selector")
    errors += _affinity_errors(spec)
    errors += cluster_ip_errors(spec, sub(old, "spec") if old is not None else None)
    known = sub(old, "spec").get("externalIPs") or []
    for index, address in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{index}]"
        errors += checks.ip(address, path, known) or checks.endpoint_ip(address, path)
    errors += checks.supported(spec.get("type") or "", TYPES, "spec.type")
    errors += _port_use_errors(spec, ports) + _source_range_errors(obj, old)
    balancer = spec.get("type") == "LoadBalancer"
    allocate = spec.get("allocateLoadBalancerNodePorts")
    if allocate is not None and not balancer:
        errors.append(forbidden_field("spec.allocateLoadBalancerNodePorts", _ONLY_BALANCER))
    if allocate is None and balancer:
        errors.append(required("allocateLoadBalancerNodePorts"))
    return errors + _class_errors(spec, None) + _policy_errors(spec)


def _annotation_errors(obj: Obj) -> Errors:
    annotations = sub(obj, "metadata").get("annotations") or {}
    if _MODE in annotations and _HINTS in annotations and annotations[_MODE] != annotations[_HINTS]:
        why = f"must match annotations[{_HINTS}] when both are specified"
        return [invalid_value(f"metadata.annotations[{_MODE}]", annotations[_MODE], why)]
    return []


def _type_errors(spec: Obj) -> Errors:
    kind = spec.get("type")
    errors: Errors = []
    if not spec.get("ports") and not is_headless(spec) and kind != "ExternalName":
        errors.append(required("spec.ports"))
    if kind in ("LoadBalancer", "NodePort") and is_headless(spec):
        why = f"may not be set to 'None' for {kind} services"
        errors.append(invalid_value("spec.clusterIPs[0]", "None", why))
    if kind == "ExternalName":
        for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(field):
                errors.append(forbidden_field(f"spec.{field}", "may not be set for ExternalName services"))
        name = (spec.get("externalName") or "").removesuffix(".")
        errors += checks.subdomain(name, "spec.externalName") if name else [required("spec.externalName")]
    return errors


def _port_errors(port: Obj, name_required: bool, seen: set[str], path: str) -> Errors:
    name = port.get("name") or ""
    errors: Errors = []
    if name:
        errors += checks.dns_label(name, f"{path}.name")
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
    elif name_required:
        errors.append(required(f"{path}.name"))
    errors += checks.port_number(port.get("port"), f"{path}.port")
    errors += checks.supported(port.get("protocol") or "", PROTOCOLS, f"{path}.protocol")
    errors += checks.port_or_name(port.get("targetPort"), f"{path}.targetPort")
    if port.get("appProtocol") is not None:
        errors += checks.qualified(port["appProtocol"], f"{path}.appProtocol")
    return errors


def _affinity_errors(spec: Obj) -> Errors:
    affinity, config = spec.get("sessionAffinity") or "", spec.get("sessionAffinityConfig")
    errors = checks.supported(affinity, ("ClientIP", "None"), "spec.sessionAffinity")
    if affinity == "ClientIP":
        timeout = sub(config, "clientIP").get("timeoutSeconds") or 0
        if not 0 < timeout <= 86400:
            path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            errors.append(invalid_value(path, timeout, "must be greater than 0 and less than 86400"))
    elif affinity == "None" and config is not None:
        why = "must not be set when session affinity is None"
        errors.append(forbidden_field("spec.sessionAffinityConfig", why))
    return errors


def cluster_ip_errors(spec: Obj, before: Obj | None) -> Errors:
    """Errors in clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy, which must be consistent."""
    if not needs_cluster_ip(spec):
        return []
    path = "spec.clusterIPs"
    one, many = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    errors: Errors = []
    if one and not many:
        errors.append(required(path))
    elif one and many[0] != one:
        errors.append(invalid_value(path, many, "first value must match `clusterIP`"))
    elif not one and many:
        errors.append(invalid_value(path, many, "must be empty when `clusterIP` is not specified"))
    errors += _family_errors(spec)
    known = (before or {}).get("clusterIPs") or []
    bad = False
    for index, address in enumerate(many):
        if index == 0 and address == "None":
            if len(many) > 1:
                bad = True
                errors.append(invalid_value(path, many, "'None' must be the first and only value"))
            continue
        found = checks.ip(address, f"{path}[{index}]", known)
        bad = bad or bool(found)
        errors += found
    if len(many) > 2:
        errors.append(invalid_value(path, many, "may only hold up to 2 values"))
    if bad:
        return errors
    if len(many) > 1 and len(checks.families(many)) < 2:
        errors.append(invalid_value(path, many, "may specify no more than one IP for each IP family"))
    if not is_headless(spec):
        for index, (address, family) in enumerate(zip(many, spec.get("ipFamilies") or (), strict=False)):
            if family in ("IPv4", "IPv6") and (":" in address) != (family == "IPv6"):
                why = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
                errors.append(invalid_value(f"{path}[{index}]", address, why))
    return errors


def _family_errors(spec: Obj) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        if family not in ("IPv4", "IPv6"):
            errors.append(not_supported(f"spec.ipFamilies[{index}]", family, ("IPv4", "IPv6")))
        if family in seen:
            errors.append(duplicate(f"spec.ipFamilies[{index}]", family))
        seen.add(family)
    policies = ("PreferDualStack", "RequireDualStack", "SingleStack")
    return errors + checks.supported(spec.get("ipFamilyPolicy"), policies, "spec.ipFamilyPolicy", False)


def _port_use_errors(spec: Obj, ports: list[Obj]) -> Errors:
    errors: Errors = []
    node_ports: set[tuple[str, int]] = set()
    used: set[tuple[str, int]] = set()
    if spec.get("type") == "ClusterIP":
        for index, port in enumerate(ports):
            if port.get("nodePort"):
                why = "may not be used when `type` is 'ClusterIP'"
                errors.append(forbidden_field(f"spec.ports[{index}].nodePort", why))
    for index, port in enumerate(ports):
        key = (port.get("protocol") or "", port.get("nodePort") or 0)
        if key[1] and key in node_ports:
            errors.append(duplicate(f"spec.ports[{index}].nodePort", key[1]))
        node_ports.add(key)
    for index, port in enumerate(ports):
        key = (port.get("protocol") or "", port.get("port") or 0)
        if key in used:
            shown = {"Name": "", "Protocol": key[0], "AppProtocol": None, "Port": key[1], "TargetPort": 0, "NodePort": 0}
            errors.append(duplicate(f"spec.ports[{index}]", checks.Verbatim(dumps_text(shown))))
        used.add(key)
    return errors


def _source_range_errors(obj: Obj, old: Obj | None) -> Errors:
    spec, annotations = sub(obj, "spec"), sub(obj, "metadata").get("annotations") or {}
    ranges = spec.get("loadBalancerSourceRanges") or []
    errors: Errors = []
    if ranges:
        path = "spec.LoadBalancerSourceRanges"
        if spec.get("type") != "LoadBalancer":
            errors.append(forbidden_field(path, _ONLY_BALANCER))
        known = [each.strip() for each in sub(old, "spec").get("loadBalancerSourceRanges") or ()]
        for index, each in enumerate(ranges):
            errors += checks.cidr(each.strip(), f"{path}[{index}]", known)
    elif _RANGES in annotations:
        path, text = f"metadata.annotations[{_RANGES}]", annotations[_RANGES]
        if spec.get("type") != "LoadBalancer":
            errors.append(forbidden_field(path, _ONLY_BALANCER))
        if text.strip() and (sub(old, "metadata").get("annotations") or {}).get(_RANGES) != text:
            for each in text.strip().split(","):
                errors += checks.cidr(each.strip(), path)
    return errors


def _class_errors(spec: Obj, before: Obj | None) -> Errors:
    path, name = "spec.loadBalancerClass", spec.get("loadBalancerClass")
    balancer = spec.get("type") == "LoadBalancer"
    errors: Errors = []
    stays = before is not None and before.get("type") == "LoadBalancer" and balancer
    if stays and sub(before).get("loadBalancerClass") != name:
        errors.append(invalid_value(path, name, _ONCE))
    if name is not None:
        errors += checks.qualified(name, path) if balancer else [forbidden_field(path, _ONLY_BALANCER)]
    return errors


def _policy_errors(spec: Obj) -> Errors:
    path, policy = "spec.externalTrafficPolicy", spec.get("externalTrafficPolicy") or ""
    errors: Errors = []
    if externally_accessible(spec):
        errors += checks.supported(policy, ("Cluster", "Local"), path)
    elif policy:
        errors.append(invalid_value(path, policy, "may only be set for externally-accessible services"))
    port = spec.get("healthCheckNodePort") or 0
    if needs_health_check(spec):
        errors += checks.port_number(port, "spec.healthCheckNodePort") if port else [required("spec.healthCheckNodePort")]
    elif port:
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.append(invalid_value("spec.healthCheckNodePort", port, why))
    internal = spec.get("internalTrafficPolicy")
    if internal is None and spec.get("type") in ("NodePort", "LoadBalancer", "ClusterIP"):
        errors.append(required("spec.internalTrafficPolicy"))
    if internal is not None and internal not in ("Cluster", "Local"):
        errors.append(not_supported("spec.internalTrafficPolicy", internal, ("Cluster", "Local")))
    spread = ("PreferClose", "PreferSameZone", "PreferSameNode")
    return errors + checks.supported(spec.get("trafficDistribution"), spread, "spec.trafficDistribution", False)


def _validate(obj: Obj) -> Errors:
    return checks.meta_errors(obj, True, object_meta.label_name) + _service_errors(obj, None)


def _validate_update(obj: Obj, old: Obj) -> Errors:
    spec, before = sub(obj, "spec"), sub(old, "spec")
    errors = checks.meta_update_errors(obj, old)
    errors += _address_change_errors(spec, before) + _family_change_errors(spec, before) + _class_errors(spec, before)
    moved = (before.get("healthCheckNodePort") or 0) != (spec.get("healthCheckNodePort") or 0)
    if moved and needs_health_check(before) and needs_health_check(spec):
        errors.append(forbidden_field("spec.healthCheckNodePort", "field is immutable"))
    return errors + _service_errors(obj, old)


def _address_change_errors(spec: Obj, before: Obj) -> Errors:
    if not needs_cluster_ip(spec) or not needs_cluster_ip(before) or (is_headless(spec) and is_headless(before)):
        return []
    new, old = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    path = "spec.clusterIPs"
    if len(old) == len(new):
        return [invalid_value(f"{path}[{i}]", new, _ONCE) for i, address in enumerate(old) if address != new[i]]
    errors: Errors = []
    if not new:
        errors.append(invalid_value(f"{path}[0]", new, "primary clusterIP can not be unset"))
    if old and new and new[0] != old[0]:
        errors.append(invalid_value(f"{path}[0]", new, _ONCE))
    if len(old) > len(new) == 1 and spec.get("ipFamilyPolicy") != "SingleStack":
        why = "must be set to 'SingleStack' when releasing the secondary clusterIP"
        errors.append(invalid_value("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), why))
    return errors


def _family_change_errors(spec: Obj, before: Obj) -> Errors:
    if not needs_cluster_ip(spec) or not needs_cluster_ip(before) or is_headless(spec) or is_headless(before):
        return []
    new, old = spec.get("ipFamilies") or [], before.get("ipFamilies") or []
    path = "spec.ipFamilies[0]"
    if len(new) == len(old):
        return [invalid_value(path, new, _ONCE) for i, family in enumerate(old) if family != new[i]]
    errors: Errors = []
    if new and old and new[0] != old[0]:
        errors.append(invalid_value(path, spec.get("clusterIPs"), _ONCE))
    if len(old) > len(new) == 1 and spec.get("ipFamilyPolicy") != "SingleStack":
        why = "must be set to 'SingleStack' when releasing the secondary ipFamily"
        errors.append(invalid_value("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), why))
    return errors


def _validate_status_update(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old)
    ingress = sub(obj, "status", "loadBalancer").get("ingress") or []
    path = "status.loadBalancer.ingress"
    if sub(obj, "spec").get("type") != "LoadBalancer":
        why = "may only be used when `spec.type` is 'LoadBalancer'"
        return [*errors, forbidden_field(path, why)] if ingress else errors
    known = [each.get("ip") or "" for each in sub(old, "status", "loadBalancer").get("ingress") or ()]
    for index, each in enumerate(ingress):
        errors += _ingress_errors(each, known, f"{path}[{index}]")
    return errors


def _ingress_errors(each: Obj, known: list[str], path: str) -> Errors:
    address, mode, hostname = each.get("ip") or "", each.get("ipMode"), each.get("hostname") or ""
    errors = checks.ip(address, f"{path}.ip", known) if address else []
    if mode is None and address:
        errors.append(required(f"{path}.ipMode", "must be specified when `ip` is set"))
    elif mode is not None and not address:
        errors.append(forbidden_field(f"{path}.ipMode", "may not be specified when `ip` is not set"))
    elif mode is not None and mode not in ("Proxy", "VIP"):
        errors.append(not_supported(f"{path}.ipMode", mode, ("Proxy", "VIP")))
    if hostname:
        errors += checks.subdomain(hostname, f"{path}.hostname")
        if checks.parse_ip(hostname) is not None:
            errors.append(invalid_value(f"{path}.hostname", hostname, "must be a DNS name, not an IP address"))
    return errors


def _warnings(obj: Obj, old: Obj | None) -> list[str]:
    spec = sub(obj, "spec")
    found: list[str] = []
    if _HINTS in (sub(obj, "metadata").get("annotations") or {}):
        found.append(f"annotation {_HINTS} is deprecated, please use {_MODE} instead")
    headless = spec.get("type") == "ClusterIP" and spec.get("clusterIP") == "None"
    external = spec.get("externalIPs") or []
    if headless:
        if spec.get("loadBalancerIP"):
            found.append("spec.loadBalancerIP is ignored for headless services")
        if external:
            found.append("spec.externalIPs is ignored for headless services")
        if spec.get("sessionAffinity") != "None":
            found.append("spec.SessionAffinity is ignored for headless services")
    for index, address in enumerate(external):
        found += checks.ip_warnings(address, f"spec.externalIPs[{index}]")
    if external and not headless and spec.get("type") != "ExternalName":
        found.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    if spec.get("type") == "ExternalName" and external:
        found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if spec.get("type") != "ExternalName" and spec.get("externalName"):
        found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        found.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Columns


def _external(obj: Obj) -> str:
    spec = sub(obj, "spec")
    own = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(own) or NONE
        case "LoadBalancer":
            ingress = sub(obj, "status", "loadBalancer").get("ingress") or ()
            given = sorted({each.get("ip") or each.get("hostname") or "" for each in ingress} - {""})
            return ",".join([*given, *own]) or "<pending>"
        case "ExternalName":
            return spec.get("externalName") or ""
    return UNKNOWN


def _ports(obj: Obj) -> str:
    def shown(port: Obj) -> str:
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        return f"{port.get('port')}{node}/{port.get('protocol')}"

    return ",".join(shown(port) for port in sub(obj, "spec").get("ports") or ()) or NONE


STRATEGY = Strategy(
    default=_default,
    prepare_for_create=_prepare_for_create,
    validate=_validate,
    prepare_for_update=_prepare_for_update,
    validate_update=_validate_update,
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=_validate_status_update,
    warnings=_warnings,
    name_problems=object_meta.label_name,
    fields=lambda obj: {f"spec.{field}": sub(obj, "spec").get(field) or "" for field in ("clusterIP", "type")},
    field_names=frozenset(("spec.clusterIP", "spec.type")),
    columns=(
        NAME,
        column("Type", at("spec", "type"), "The type of the service."),
        column("Cluster-IP", lambda o: (sub(o, "spec").get("clusterIPs") or [NONE])[0], "Address inside the cluster."),
        column("External-IP", _external, "Address from outside."),
        column("Port(s)", _ports, "Ports of the service, with their node ports."),
        AGE,
        column("Selector", lambda obj: format_labels(sub(obj, "spec").get("selector")), "Pods behind it.", wide=True),
    ),
    allow_create_on_update=True,
)
