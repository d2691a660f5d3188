"""The objects of a machine pool: a MachineDeployment, its templates, and its MachineHealthCheck."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.capi.change_budget import CHANGE_BUDGET, CLUSTER_CHANGE_BUDGET
from remuda.capi.well_known import AUTOSCALER_MAX, AUTOSCALER_MIN, CONTROL_PLANE, DEPLOYMENT_NAME, EXCLUDE_NODE_DRAINING
from remuda.capi.well_known import CLUSTER_NAME as CAPI_CLUSTER_NAME
from remuda.kube.duration import parse_go_duration
from remuda.kube.encoding import gojson
from remuda.kube.encoding.go_format import IntegerError, atoi
from remuda.kube.objects import GroupVersion, annotations_of, dig, name_of

from ..well_known import (
    ADDRESS_AUTHORS,
    CLONED_FROM_KIND,
    CLONED_FROM_NAME,
    CLONED_FROM_VERSION,
    CLUSTER_NAME,
    CONFIG_API_VERSION,
    CONTROL_PLANE_ROLE,
    ETCD_ROLE,
    HOSTNAME_LIMIT,
    LABELS,
    MACHINE_API_VERSION,
    OPERATING_SYSTEM,
    POOL_NAME,
    PRUNE,
    SEALED_DIGESTS,
    TAINTS,
    TEMPLATE_HASH,
    WORKER_ROLE,
    bootstrap_hash,
    hashed_name,
    pool_name,
    resource_of,
    shared_bootstrap_name,
    template_hash,
    template_kind,
)
from .generated import Generated, Unrenderable, generated, present

Obj = dict[str, Any]

_ROLES = (("etcdRole", ETCD_ROLE), ("controlPlaneRole", CONTROL_PLANE_ROLE), ("workerRole", WORKER_ROLE))
_MOST_SECONDS = 2**31 - 1
_SHORTEST_HOSTNAME, _LONGEST_HOSTNAME = 10, 63


class _Taint(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Fields in Go's order."""

    key: str
    value: str = ""
    effect: str
    timeAdded: str = ""


def pools_written(cluster: Obj | None) -> list[Obj]:
    """The pools as sent, for rules that validate them before anything else."""
    found = dig(cluster, "spec", "rkeConfig", "machinePools")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def pools_of(wanted: Obj) -> list[Obj]:
    """The pools, validated: each has a unique name, a role, and a machine config."""
    pools = dig(wanted, "spec", "rkeConfig", "machinePools") or []
    seen: set[str] = set()
    for number, pool in enumerate(pools):
        path = f"spec.rkeConfig.machinePools[{number}]"
        name = pool.get("name")
        if not name:
            raise Unrenderable(f"{path}.name: must be set")
        if name in seen:
            raise Unrenderable(f"{path}.name: there is another pool {name}")
        seen.add(name)
        for field in ("name", "kind"):
            if not dig(pool, "machineConfigRef", field):
                raise Unrenderable(f"{path}.machineConfigRef.{field}: must be set (pool {name})")
        if not any(pool.get(field) for field, _ in _ROLES):
            raise Unrenderable(f"{path}: one of etcdRole, controlPlaneRole and workerRole must be true (pool {name})")
    return list(pools)


def has_config(pool: Obj) -> bool:
    """True if the pool names a machine config, false if it names another provider's template."""
    return (dig(pool, "machineConfigRef", "apiVersion") or CONFIG_API_VERSION) == CONFIG_API_VERSION


def config_of(pool: Obj) -> tuple[str, str]:
    """The kind and name of a pool's machine config; empty if it has none."""
    named = pool.get("machineConfigRef")
    if not isinstance(named, dict) or not has_config(pool):
        return "", ""
    return str(named.get("kind") or ""), str(named.get("name") or "")


def credential_of(wanted: Obj, pool: Obj) -> str:
    return pool.get("cloudCredentialSecretName") or dig(wanted, "spec", "cloudCredentialSecretName") or ""


def pool_objects(wanted: Obj, infrastructure: Obj, configs: Mapping[str, Obj]) -> list[Generated]:
    """`configs` are the machine configs, by the names of their pools."""
    pools = pools_of(wanted)
    shared = infrastructure["apiGroup"] == rke.GROUP
    made = [bootstrap_template(wanted, shared_bootstrap_name(name_of(wanted)))] if pools and shared else []
    for pool in pools:
        if shared:
            bootstrap = made[0]
        else:
            bootstrap = _own_bootstrap(wanted, pool)
            made.append(bootstrap)
        reference = dict(pool["machineConfigRef"])
        if has_config(pool):
            template = machine_template(wanted, pool, configs[pool["name"]])
            made.append(template)
            reference = {**template.obj, "name": name_of(template.obj)}
        made.append(machine_deployment(wanted, pool, name_of(bootstrap.obj), reference))
        check = machine_health_check(wanted, pool)
        if check is not None:
            made.append(check)
    return made


# --- templates ----------------------------------------------------------------------------------------------------------------


def bootstrap_template(wanted: Obj, name: str, userdata: Obj | None = None) -> Generated:
    cluster = name_of(wanted)
    spec = {"clusterName": cluster, "template": {"spec": {"clusterName": cluster, **present(userdata=userdata)}}}
    labels = {CLUSTER_NAME: cluster}
    return generated(rke.RKE_BOOTSTRAP_TEMPLATES, rke.API_VERSION, "RKEBootstrapTemplate", wanted, name, spec=spec, labels=labels)


def _own_bootstrap(wanted: Obj, pool: Obj) -> Generated:
    """On another provider's infrastructure, machines may get the user's data besides ours."""
    base = pool_name(name_of(wanted), pool["name"])
    name = hashed_name(base, bootstrap_hash(base, dig(pool, "userdata", "inlineUserdata") or ""))
    return bootstrap_template(wanted, name, pool.get("userdata"))


def machine_template(wanted: Obj, pool: Obj, config: Obj) -> Generated:
    """Its name has a hash of its content, so that a change makes another template, to which Cluster API rolls the machines.
    Old templates stay: machines may still be made from them."""
    reference = pool["machineConfigRef"]
    base = pool_name(name_of(wanted), pool["name"])
    fields = known_fields(pool, config)
    digest = template_digest(wanted, pool, config)
    common = present(labels=pool.get("labels"), taints=pool.get("taints"), cloudCredentialSecretName=credential_of(wanted, pool))
    kind = template_kind(reference["kind"])
    return generated(
        resource_of(MACHINE_API_VERSION, kind),
        MACHINE_API_VERSION,
        kind,
        wanted,
        hashed_name(base, digest),
        spec={"clusterName": name_of(wanted), "template": {"spec": {**fields, "common": common}}},
        labels={TEMPLATE_HASH: digest, PRUNE: "false"},
        annotations={
            CLONED_FROM_VERSION: reference.get("apiVersion") or CONFIG_API_VERSION,
            CLONED_FROM_KIND: reference["kind"],
            CLONED_FROM_NAME: reference["name"],
            **present(**{ADDRESS_AUTHORS: annotations_of(config).get(ADDRESS_AUTHORS)}),
        },
    )


def template_digest(wanted: Obj, pool: Obj, config: Obj) -> str:
    """Machines of a pool are replaced when it changes. A config whose secret fields were sealed after machines had been made
    from it keeps its digest."""
    digest = template_hash(pool_name(name_of(wanted), pool["name"]), known_fields(pool, config))
    return sealed_digests(config).get(digest, digest)


def sealed_digests(config: Obj) -> dict[str, str]:
    """The template digests from before the config's fields were sealed, by the current ones."""
    try:
        return msgspec.json.decode(annotations_of(config).get(SEALED_DIGESTS) or "{}", type=dict[str, str])
    except msgspec.DecodeError:
        return {}


def known_fields(pool: Obj, config: Obj) -> Obj:
    """The fields that the driver had when the pool was made: a new driver field must not replace machines."""
    try:
        schema = msgspec.json.decode(pool.get("dynamicSchemaSpec") or "")
    except msgspec.DecodeError:
        raise Unrenderable(f"machine pool {pool['name']}: dynamicSchemaSpec is not JSON") from None
    known = dig(schema, "resourceFields") or {}
    return {name: value for name, value in config.items() if name in known}


# --- the machines themselves --------------------------------------------------------------------------------------------------


def machine_deployment(wanted: Obj, pool: Obj, bootstrap: str, infrastructure: Obj) -> Generated:
    cluster, name = name_of(wanted), pool_name(name_of(wanted), pool["name"])
    system = pool.get("machineOS") or "linux"
    group = GroupVersion.parse(infrastructure.get("apiVersion") or "").group
    drain = seconds(pool, "drainBeforeDeleteTimeout")
    template_spec = {
        "clusterName": cluster,
        "bootstrap": {"configRef": {"apiGroup": rke.GROUP, "kind": "RKEBootstrapTemplate", "name": bootstrap}},
        "infrastructureRef": {"apiGroup": group, "kind": infrastructure["kind"], "name": infrastructure["name"]},
        **present(deletion=None if drain is None else {"nodeDrainTimeoutSeconds": drain}),
    }
    spec = {
        "clusterName": cluster,
        # The selector follows from its name; admission fills it in.
        "selector": {},
        "rollout": {"strategy": {"type": "RollingUpdate", **present(rollingUpdate=_bounds(wanted, pool))}},
        "deletion": {"order": "Oldest"},
        "template": {"metadata": _template_metadata(wanted, pool, name, system), "spec": template_spec},
        **present(replicas=pool.get("quantity"), paused=True if pool.get("paused") else None),
    }
    return generated(
        capi.MACHINE_DEPLOYMENTS,
        capi.API_VERSION,
        "MachineDeployment",
        wanted,
        name,
        spec=spec,
        labels={**(pool.get("labels") or {}), **(pool.get("machineDeploymentLabels") or {}), OPERATING_SYSTEM: system},
        annotations={**(pool.get("machineDeploymentAnnotations") or {}), **_sizes(pool), **_cluster_budget(wanted)},
    )


def _template_metadata(wanted: Obj, pool: Obj, deployment: str, system: str) -> Obj:
    cluster = name_of(wanted)
    labels = {
        CAPI_CLUSTER_NAME: cluster,
        CLUSTER_NAME: cluster,
        DEPLOYMENT_NAME: deployment,
        POOL_NAME: pool["name"],
        **{label: "true" for field, label in _ROLES if pool.get(field)},
        **({CONTROL_PLANE: "true"} if pool.get("controlPlaneRole") else {}),
        OPERATING_SYSTEM: system,
        **(pool.get("labels") or {}),
    }
    annotations: Obj = {}
    if not pool.get("drainBeforeDelete"):
        annotations[EXCLUDE_NODE_DRAINING] = "true"
    if limit := _hostname_limit(wanted, pool):
        annotations[HOSTNAME_LIMIT] = str(limit)
    if pool.get("labels"):
        annotations[LABELS] = gojson.dumps(pool["labels"]).decode()
    if pool.get("taints"):
        annotations[TAINTS] = taints_text(pool["taints"])
    return {"labels": labels, **present(annotations=annotations)}


def taints_text(taints: list[Obj]) -> str:
    fields = _Taint.__struct_fields__
    return gojson.dumps([_Taint(**{field: taint.get(field) or "" for field in fields}) for taint in taints]).decode()


def _hostname_limit(wanted: Obj, pool: Obj) -> int:
    for limit in (
        pool.get("hostnameLengthLimit"),
        dig(wanted, "spec", "rkeConfig", "machinePoolDefaults", "hostnameLengthLimit"),
    ):
        if isinstance(limit, int) and _SHORTEST_HOSTNAME <= limit <= _LONGEST_HOSTNAME:
            return limit
    return 0


def _bounds(wanted: Obj, pool: Obj) -> Obj:
    """The bounds of a rollout. A cluster's only etcd or control plane machine can't go before another one exists."""
    rolling = pool.get("rollingUpdate") or {}
    bounds = {field: rolling[field] for field in ("maxSurge", "maxUnavailable") if rolling.get(field) is not None}
    if bounds.get("maxSurge") in (0, "0%") and _has_the_only_server(wanted, pool):
        return {"maxSurge": 1, "maxUnavailable": 0}
    return bounds


def _has_the_only_server(wanted: Obj, pool: Obj) -> bool:
    pools = dig(wanted, "spec", "rkeConfig", "machinePools") or ()
    return any(pool.get(role) and _size_of_role(pools, role) <= 1 for role in ("etcdRole", "controlPlaneRole"))


def _size_of_role(pools: Iterable[Obj], role: str) -> int:
    return sum(1 if each.get("quantity") is None else each["quantity"] for each in pools if each.get(role))


def _sizes(pool: Obj) -> Obj:
    named = ((AUTOSCALER_MIN, pool.get("autoscalingMinSize")), (AUTOSCALER_MAX, pool.get("autoscalingMaxSize")))
    return {name: str(size) for name, size in named if size is not None}


def budget_of_pool(pool: Obj) -> str | None:
    """The pool's change budget, an annotation of its MachineDeployment."""
    found = dig(pool, "machineDeploymentAnnotations", CHANGE_BUDGET)
    return None if found is None else str(found)


def _cluster_budget(wanted: Obj) -> dict[str, str]:
    found = annotations_of(wanted).get(CHANGE_BUDGET)
    return {} if found is None else {CLUSTER_CHANGE_BUDGET: found}


def machine_health_check(wanted: Obj, pool: Obj) -> Generated | None:
    """The health check of a pool; None unless the pool sets a timeout for unhealthy nodes."""
    timeout = seconds(pool, "unhealthyNodeTimeout")
    if timeout is None or timeout <= 0:
        return None
    name = pool_name(name_of(wanted), pool["name"])
    ready = [{"type": "Ready", "status": status, "timeoutSeconds": timeout} for status in ("Unknown", "False")]
    startup = seconds(pool, "nodeStartupTimeout")
    trigger = present(
        unhealthyLessThanOrEqualTo=_int_or_percent(pool.get("maxUnhealthy")), unhealthyInRange=pool.get("unhealthyRange")
    )
    spec = {
        "clusterName": name_of(wanted),
        "selector": {"matchLabels": {DEPLOYMENT_NAME: name}},
        "checks": {"unhealthyNodeConditions": ready, **present(nodeStartupTimeoutSeconds=startup)},
        **present(remediation={"triggerIf": trigger} if trigger else None),
    }
    return generated(capi.MACHINE_HEALTH_CHECKS, capi.API_VERSION, "MachineHealthCheck", wanted, name, spec=spec)


_NAMES_OF_ROLES = (("etcdRole", "etcd"), ("controlPlaneRole", "control plane"), ("workerRole", "worker"))


def why_roles_are_missing(pools: Iterable[Obj]) -> str:
    """The reason why pools alone make no cluster, with what to do; "" if they have all roles, or there are none."""
    found = [pool for pool in pools if isinstance(pool, dict)]
    lacking = [(field, name) for field, name in _NAMES_OF_ROLES if not any(pool.get(field) is True for pool in found)]
    if not found or not lacking:
        return ""
    fields = " and ".join(f"{field}: true" for field, _ in lacking)
    names = ", ".join(name for _, name in lacking)
    return f"the machine pools lack roles (missing: {names}): set {fields} in a machine pool, or register hosts with them"


def seconds(pool: Obj, field: str) -> int | None:
    """A duration of a pool in whole seconds, limited to 32 bits; None if it is not set."""
    text = pool.get(field)
    if text is None:
        return None
    found = parse_go_duration(str(text))
    if found is None:
        raise Unrenderable(f"machine pool {pool['name']}: {field}: {text} is no duration, such as 10m is")
    whole = abs(found) // 10**9
    return min(whole, _MOST_SECONDS) if found >= 0 else -whole


def _int_or_percent(text: str | None) -> int | str | None:
    if not text:
        return None
    try:
        return atoi(text)
    except IntegerError:
        return text
