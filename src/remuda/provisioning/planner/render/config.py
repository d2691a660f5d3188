"""50-rancher.yaml: the distribution's configuration on one host (docs/reference/node-plan.md#configuration).

The order of the steps is the original's: the users' values come first, and those that the planner must set come after them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from remuda.api.rke_cattle_io import PRIME
from remuda.kube.encoding import gojson, yamlio

from ... import well_known
from ...etcd.s3 import place
from ...plans.plan import File
from ...releases import catalog
from ...releases.catalog import Argument, Release
from ..snapshot import CannotRender, Machine
from . import components, context, node_addresses
from .context import ClusterContext, Config, HostContext, Spec, mapping, strings
from .plan_inputs import NamedObject


def config(host: HostContext, *, with_s3: bool = True) -> tuple[Config, list[File]]:
    """The host's configuration, and the files it refers to; :mod:`.selector_files` makes files for arguments later."""
    cluster = host.cluster
    found = understood(given(host), cluster.facts.release, host.is_server)
    if cluster.directories.distro_is_moved:
        found["data-dir"] = cluster.directories.distro
    files = add(host, found, with_s3=with_s3)
    _add_role(host, found)
    if host.machine.is_control_plane:
        components.add(cluster, found)
    if host.machine.plan_labels.get(well_known.NODE_NAME):
        found["node-name"] = host.machine.plan_labels[well_known.NODE_NAME]
    if host.is_server and "prime" not in found and _is_prime(cluster):
        found["prime"] = True
    add_authorized_endpoint(host, found)
    _add_tokens(host, found)
    node_addresses.add(host, found)
    found["node-label"] = context.labels(host)
    found["node-taint"] = [str(taint) for taint in context.taints(host)]
    return found, files


def file(cluster: ClusterContext, found: Config) -> File:
    return File.of(path(cluster), gojson.dumps_indented(found))


def path(cluster: ClusterContext) -> str:
    return cluster.layout.path(f"{cluster.runtime.config_directory}/config.yaml.d/50-rancher.yaml")


def _add_role(host: HostContext, found: Config) -> None:
    machine, cluster = host.machine, host.cluster
    if host.join.init:
        if cluster.runtime.says_cluster_init:
            found["cluster-init"] = True
    else:
        found["server"] = _server(host)
    if machine.is_only_etcd:
        found |= {"disable-scheduler": True, "disable-apiserver": True, "disable-controller-manager": True}
    elif machine.is_control_plane and not machine.is_etcd:
        found["disable-etcd"] = True
    if host.is_server and cluster.private_registry:
        found["system-default-registry"] = cluster.private_registry


def _server(host: HostContext) -> str:
    """The server that the host joins: the given one, else its current one."""
    if host.join.server:
        return host.join.server
    if host.machine.joined_to is None:
        raise CannotRender(f"implausible joined server for machine {host.machine.name}: there is none", on=host.machine.ref())
    return host.machine.joined_to


def _is_prime(cluster: ClusterContext) -> bool:
    if cluster.facts.release.argument("prime", server=True) is None:
        return False
    said = cluster.control_plane.annotations.get(PRIME)
    return said == "true" if said else cluster.facts.prime_by_default


def _add_tokens(host: HostContext, found: Config) -> None:
    tokens = host.cluster.tokens
    if tokens is None:
        raise CannotRender("waiting for the tokens of the cluster to be made", on=host.cluster.control_plane.ref())
    if host.is_server:
        found |= {"token": tokens.server, "agent-token": tokens.agent}
    else:
        found["token"] = tokens.agent


# --- etcd snapshots -------------------------------------------------------------------------------------------------------
#
# Snapshots of etcd members, and their storage: the cluster's `etcd` as arguments (docs/reference/node-plan.md#configuration).


def add(host: HostContext, config: Config, *, with_s3: bool = True) -> list[File]:
    """Add the snapshot settings to `config`; returns the files it then refers to. A restore leaves S3 out."""
    etcd = mapping(host.cluster.spec.get("etcd"))
    if not host.machine.is_etcd or not etcd:
        return []
    if etcd.get("disableSnapshots"):
        config["etcd-disable-snapshots"] = True
    if _number(etcd.get("snapshotRetention")) > 0:
        config["etcd-snapshot-retention"] = _number(etcd.get("snapshotRetention"))
    if etcd.get("snapshotScheduleCron"):
        config["etcd-snapshot-schedule-cron"] = str(etcd["snapshotScheduleCron"])
    s3 = mapping(etcd.get("s3"))
    return _add_s3(host.cluster, s3, config) if s3 and with_s3 else []


def _add_s3(cluster: ClusterContext, s3: Spec, config: Config) -> list[File]:
    credential = _credential(cluster, str(s3.get("cloudCredentialName") or ""))
    fields = place.merged(s3, credential)
    config |= _s3_arguments(fields, credential)
    if _number(s3.get("retention")) > 0:
        config["etcd-s3-retention"] = _number(s3.get("retention"))
    config["etcd-s3"] = True
    return _add_authority(cluster, fields["endpointCA"], config)


def s3_flags(cluster: ClusterContext, s3: Spec) -> tuple[tuple[str, ...], tuple[str, ...], list[File]]:
    """The arguments, variables and files by which a command finds a snapshot in its bucket. What the snapshot does not say is as
    in the cluster's own settings. The secret key is a variable, since other users of the host can read arguments."""
    own = mapping(mapping(cluster.spec.get("etcd")).get("s3"))
    name = str(s3.get("cloudCredentialName") or "")
    if name and name != own.get("cloudCredentialName"):
        raise cluster.refused(f"the snapshot's credential {name} is not that of etcd.s3.cloudCredentialName")
    credential = _credential(cluster, str(own.get("cloudCredentialName") or ""))
    fields = place.merged({**own, **{key: value for key, value in s3.items() if value}}, credential)
    found = _s3_arguments(fields, credential)
    secret = found.pop("etcd-s3-secret-key", None)
    files = _add_authority(cluster, fields["endpointCA"], found)
    flags = [f"--{key}={'true' if value is True else value}" for key, value in found.items()]
    return (*flags, "--etcd-s3"), (f"AWS_SECRET_ACCESS_KEY={secret}",) if secret else (), files


def _s3_arguments(fields: Mapping[str, Any], credential: Mapping[str, str]) -> Config:
    config: Config = {}
    for name, value in (
        ("bucket", fields["bucket"]),
        ("access-key", credential.get("accessKey")),
        ("secret-key", credential.get("secretKey")),
        ("region", fields["region"]),
        ("folder", fields["folder"]),
        ("endpoint", fields["endpoint"]),
    ):
        if value:
            config[f"etcd-s3-{name}"] = str(value)
    if fields["skipSSLVerify"]:
        config["etcd-s3-skip-ssl-verify"] = True
    return config


def _add_authority(cluster: ClusterContext, authority: str, config: Config) -> list[File]:
    """The CA of the endpoint: a path that exists on the host, or certificates, plain or as base64, that become a file."""
    if not authority:
        return []
    if place.is_file(authority):
        config["etcd-s3-endpoint-ca"] = cluster.layout.path(authority)
        return []
    path = cluster.config_file(f"s3-endpoint-ca-{hashlib.md5(authority.encode(), usedforsecurity=False).hexdigest()[:5]}.crt")
    config["etcd-s3-endpoint-ca"] = path
    return [File.of(path, place.plain_authority(authority))]


def _credential(cluster: ClusterContext, reference: str) -> Mapping[str, str]:
    if not reference:
        return {}
    namespace, colon, name = reference.partition(":")
    source: NamedObject = cluster.secret(name, namespace) if colon else cluster.secret(namespace)
    return place.credential_fields(source.data)


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


# --- arguments ------------------------------------------------------------------------------------------------------------
#
# The users' arguments: those that a machine gets, and those of them that its version supports
# (docs/reference/node-plan.md#configuration).
#
# An unknown argument would keep the distribution from starting, so it is left out, as in the original. The original also leaves
# out numbers and objects; that is kept, since adding them now would restart clusters that run without them. `ignored` lists
# what was left out, and the planner reports it. K3s' agent stops at an argument that it does not know, so that the release data
# says for each command what it accepts. Neither is a value rendered that is known to keep it, or a component of Kubernetes, from
# starting.


def given(host: HostContext) -> Config:
    """The arguments for a machine: the distribution's default, the cluster's, then the selected ones; later ones win."""
    runtime = host.cluster.runtime
    config: Config = {"cni": runtime.default_cni} if runtime.default_cni else {}
    config.update(host.cluster.global_config)
    for selector, said in host.cluster.selector_configs:
        if selector.matches(host.machine.labels):
            config.update(said)
    return config


def understood(config: Spec, release: Release, server: bool) -> Config:
    """The arguments that a host of the role supports."""
    found: Config = {}
    for name, value in config.items():
        argument = release.argument(name, server)
        if argument is not None and catalog.is_usable(value) and (kept := release.without_fatal(name, value)) is not None:
            found[name] = _as(argument, kept)
    return found


def ignored(cluster: ClusterContext, machines: Iterable[Machine] = ()) -> tuple[str, ...]:
    """The arguments in the cluster's spec that no machine gets, or not those that their entry selects; each with the reason."""
    release = cluster.facts.release
    known = list(machines)
    found = {}
    for name, value in cluster.global_config.items():
        found[name] = release.why_ignored(name, value)
    for selector, config in cluster.selector_configs:
        selected = [machine for machine in known if selector.matches(machine.labels)]
        only_agents = bool(selected) and not selector.empty and not any(_is_server(machine) for machine in selected)
        for name, value in config.items():
            why = release.why_ignored(name, value)
            if not why and only_agents and value and not understood({name: value}, release, server=False):
                why = f"only servers of {release.runtime.name} have it, and its machineSelectorConfig selects none"
            # The argument may have an effect in one place, and none in another.
            found[name] = found.get(name) or why
    return tuple(f"{name}: {why}" for name, why in sorted(found.items()) if why)


def _is_server(machine: Machine) -> bool:
    return machine.is_etcd or machine.is_control_plane


def _as(argument: Argument, value: Any) -> Any:
    # An empty text is no value, as for every other argument.
    if argument.is_boolean and isinstance(value, str) and value:
        return value.lower() == "true"
    return list(value) if isinstance(value, tuple) else value


def pruned(config: Mapping[str, Any]) -> Config:
    """Without empty values."""
    return {name: value for name, value in config.items() if value is not None and value != "" and value != []}


# --- authorized endpoint --------------------------------------------------------------------------------------------------
#
# The API server asks a webhook on its own host for the user of a Rancher token.

_API_SERVER = "kube-apiserver-arg"


def is_on(host: HostContext) -> bool:
    return host.is_server and bool(mapping(host.cluster.spec.get("localClusterAuthEndpoint")).get("enabled"))


def add_authorized_endpoint(host: HostContext, config: Config) -> None:
    if is_on(host):
        argument = f"authentication-token-webhook-config-file={_path(host.cluster)}"
        config[_API_SERVER] = [*strings(config.get(_API_SERVER)), argument]


def authorized_endpoint_files(host: HostContext) -> list[File]:
    if not is_on(host):
        return []
    name = "kube-api-auth"
    content = yamlio.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": f"http://{host.cluster.loopback}:6440/v1/authenticate"}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )
    return [File.of(_path(host.cluster), content)]


def _path(cluster: ClusterContext) -> str:
    return f"{cluster.directories.distro}/kube-api-authn-webhook.yaml"
