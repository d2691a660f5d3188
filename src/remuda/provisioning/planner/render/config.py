"""50-rancher.yaml: the distribution's configuration on one host (capr.md §4.6, §11.1).

The order of the steps is the original's: what users give comes first, and what the planner must be sure of comes after it.
"""

from __future__ import annotations

from remuda.api.rke_cattle_io.well_known import PRIME
from remuda.kube.encoding import gojson

from ... import well_known
from ...plans.plan import File
from ..snapshot import CannotRender
from . import arguments, authorized_endpoint, components, etcd_snapshots, labels_taints, node_addresses
from .context import Config, Ground, Host


def config(host: Host, *, with_s3: bool = True) -> tuple[Config, list[File]]:
    """What the host is told, and the files that it speaks of; files for arguments are made later, by :mod:`.selector_files`."""
    ground = host.ground
    found = arguments.understood(arguments.given(host), ground.facts.release, host.is_server)
    if ground.directories.distro_is_moved:
        found["data-dir"] = ground.directories.distro
    files = etcd_snapshots.add(host, found, with_s3=with_s3)
    _add_role(host, found)
    if host.machine.is_control_plane:
        components.add(ground, found)
    if host.machine.plan_labels.get(well_known.NODE_NAME):
        found["node-name"] = host.machine.plan_labels[well_known.NODE_NAME]
    if host.is_server and "prime" not in found and _is_prime(ground):
        found["prime"] = True
    authorized_endpoint.add(host, found)
    _add_tokens(host, found)
    node_addresses.add(host, found)
    found["node-label"] = labels_taints.labels(host)
    found["node-taint"] = [str(taint) for taint in labels_taints.taints(host)]
    return found, files


def file(ground: Ground, found: Config) -> File:
    return File.of(path(ground), gojson.dumps_indented(found))


def path(ground: Ground) -> str:
    return ground.layout.path(f"{ground.runtime.config_directory}/config.yaml.d/50-rancher.yaml")


def _add_role(host: Host, found: Config) -> None:
    machine, ground = host.machine, host.ground
    if host.join.init:
        if ground.runtime.says_cluster_init:
            found["cluster-init"] = True
    else:
        found["server"] = _server(host)
    if machine.is_only_etcd:
        found |= {"disable-scheduler": True, "disable-apiserver": True, "disable-controller-manager": True}
    elif machine.is_control_plane and not machine.is_etcd:
        found["disable-etcd"] = True
    if host.is_server and ground.private_registry:
        found["system-default-registry"] = ground.private_registry


def _server(host: Host) -> str:
    """Where the host joins: where it is told to, else where it is."""
    if host.join.server:
        return host.join.server
    if host.machine.joined_to is None:
        raise CannotRender(f"implausible joined server for machine {host.machine.name}: there is none", on=host.machine.ref())
    return host.machine.joined_to


def _is_prime(ground: Ground) -> bool:
    if ground.facts.release.argument("prime", server=True) is None:
        return False
    said = ground.control_plane.annotations.get(PRIME)
    return said == "true" if said else ground.facts.prime_by_default


def _add_tokens(host: Host, found: Config) -> None:
    tokens = host.ground.tokens
    if tokens is None:
        raise CannotRender("waiting for the tokens of the cluster to be made", on=host.ground.control_plane.ref())
    if host.is_server:
        found |= {"token": tokens.server, "agent-token": tokens.agent}
    else:
        found["token"] = tokens.agent
