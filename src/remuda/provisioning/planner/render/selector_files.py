"""Files that users store in Secrets and ConfigMaps: `machineSelectorFiles`, and the cloud provider's configuration.

An object must name the cluster in an annotation before its content goes to the cluster's hosts: write access to a cluster's
spec must not give read access to every Secret of the namespace.
"""

from __future__ import annotations

import base64
import hashlib

from remuda.api import rke_cattle_io
from remuda.kube.waits import Actor, Ref

from ...plans.plan import File
from ..snapshot import CannotRender
from .context import ClusterContext, Config, HostContext, Spec, entries, mapping
from .plan_inputs import NamedObject

SECRET_AUTHORIZED = "v2prov-secret-authorized-for-cluster"
SECRET_SCHEME = "secret://"
_CREDENTIAL = "credential"
# In the plan's order. A user sets the content; the distribution needs a path.
_FILE_ARGUMENTS = ("audit-policy-file", "cloud-provider-config", "private-registry", "flannel-conf")
_CLOUD_CONFIG, _PRIVATE_REGISTRY = "cloud-provider-config", "private-registry"


def selected(host: HostContext) -> list[File]:
    """The files that a machine's labels select."""
    found: list[File] = []
    for selector, sources in host.cluster.selector_files:
        if selector.matches(host.machine.labels):
            found += [file for source in sources for file in _files(host.cluster, source)]
    return found


def from_arguments(cluster: ClusterContext, config: Config, registries: bytes) -> list[File]:
    """Files for arguments whose value is a file's content; `config` gets their paths. There is always a registries.yaml."""
    files = []
    for name in _FILE_ARGUMENTS:
        if name == _PRIVATE_REGISTRY:
            path, content = cluster.layout.path(f"{cluster.runtime.config_directory}/registries.yaml"), registries
        else:
            said = config.get(name)
            if not isinstance(said, str) or not said:
                continue
            path, content = cluster.config_file(name), said.encode()
            if name == _CLOUD_CONFIG and said.startswith(SECRET_SCHEME):
                content = _cloud_config(cluster, said.removeprefix(SECRET_SCHEME))
        config[name] = path
        files.append(File.of(path, content))
    return files


def _files(cluster: ClusterContext, source: Spec) -> list[File]:
    for kind, read in (("secret", cluster.secret), ("configMap", cluster.config_map)):
        said = mapping(source.get(kind))
        if said.get("name"):
            found = read(str(said["name"]))
            ref = Ref("", f"{kind[0].upper()}{kind[1:]}", cluster.control_plane.namespace, str(said["name"]))
            _check_authorized(cluster, found, rke_cattle_io.AUTHORIZED, ref)
            return [_file(cluster, found, said, item) for item in entries(said.get("items"))]
    return []


def _file(cluster: ClusterContext, source: NamedObject, said: Spec, item: Spec) -> File:
    key, path = str(item.get("key") or ""), str(item.get("path") or "")
    if key not in source.data:
        raise cluster.refused(f"{said['name']} has no key {key} for the file {path}")
    content, wanted = source.data[key], item.get("hash")
    if wanted and base64.b64encode(hashlib.sha256(content).digest()).decode() != wanted:
        raise cluster.refused(f"key {key} of {said['name']} does not have the hash that is given for the file {path}")
    permissions = str(item.get("permissions") or said.get("defaultPermissions") or "")
    return File.of(cluster.layout.path(path), content, permissions=permissions, dynamic=bool(item.get("dynamic")))


def _cloud_config(cluster: ClusterContext, reference: str) -> bytes:
    namespace, _, name = reference.partition(":")
    source = cluster.secret(name, namespace)
    _check_authorized(cluster, source, SECRET_AUTHORIZED, Ref("", "Secret", namespace, name))
    if _CREDENTIAL not in source.data:
        raise cluster.refused(f"secret {reference} has no key {_CREDENTIAL} for {_CLOUD_CONFIG}")
    return source.data[_CREDENTIAL]


def _check_authorized(cluster: ClusterContext, source: NamedObject, annotation: str, ref: Ref) -> None:
    clusters = [part.strip() for part in source.annotations.get(annotation, "").split(",")]
    if cluster.control_plane.name not in clusters:
        why = f"is not authorized for the cluster {cluster.control_plane.name}: its annotation {annotation} does not name it"
        raise CannotRender(f"{ref.kind} {ref.namespace}/{ref.name} {why}", Actor.USER, ref)
