"""registries.yaml: the registries and credentials with which a host pulls images (docs/reference/node-plan.md#registries).

The same content is for the agent, which pulls the installer's image, and for the distribution. It is JSON, which is YAML.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.kube.encoding import gojson, jsonio

from ...plans.plan import File
from .context import ClusterContext, Spec, mapping
from .plan_inputs import NamedObject

AGENT_FILE = "/etc/rancher/agent/registries.yaml"
_AUTH_CONFIG = "rke.cattle.io/auth-config"
_BASIC_AUTH = "kubernetes.io/basic-auth"
_DOCKER = "kubernetes.io/dockerconfigjson"
_DOCKER_KEY = ".dockerconfigjson"
_TLS = "kubernetes.io/tls"
# With its own port.
_LOCAL = re.compile(r"(localhost|127(\.\d+){3}|\[::1\]):\d+$")

Auth = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Registries:
    """`content` is empty without settings; `files` are those it refers to, by path."""

    content: bytes = b""
    files: tuple[File, ...] = ()


def render(cluster: ClusterContext) -> Registries:
    said = mapping(cluster.spec.get("registries"))
    configs, files = _configs(cluster, mapping(said.get("configs")))
    _add_global(cluster, configs)
    files += _add_built_in(cluster, configs)
    mirrors = {host: _mirror(mapping(mirror)) for host, mirror in sorted(mapping(said.get("mirrors")).items())}
    mirrors = {**_built_in_mirror(cluster), **mirrors}
    if not configs and not mirrors:
        return Registries()
    return Registries(gojson.dumps({"configs": configs, "mirrors": mirrors}), tuple(sorted(files, key=lambda file: file.path)))


def agent_files(cluster: ClusterContext, found: Registries) -> list[File]:
    """The agent's files: only if the cluster or the server configures registries at all."""
    if not cluster.spec.get("registries") and not cluster.facts.default_registry and not found.content:
        return []
    return [File.of(cluster.layout.path(AGENT_FILE), found.content, dynamic=True), *found.files]


def _mirror(said: Spec) -> dict[str, Any]:
    made = {"endpoint": list(said.get("endpoint") or ()), "rewrite": dict(said.get("rewrite") or {})}
    return {key: value for key, value in made.items() if value}


def _configs(cluster: ClusterContext, said: Spec) -> tuple[dict[str, Any], list[File]]:
    configs: dict[str, Any] = {}
    files: list[File] = []
    for host, config in sorted(said.items()):
        config = mapping(config)
        tls, own = _tls(cluster, host, config)
        secret = str(config.get("authConfigSecretName") or "")
        configs[host] = {"auth": _auth(cluster, host, secret) if secret else None, "tls": tls}
        files += own
    return configs, files


def _tls(cluster: ClusterContext, host: str, config: Spec) -> tuple[Mapping[str, Any] | None, list[File]]:
    secret, bundle = str(config.get("tlsSecretName") or ""), config.get("caBundle")
    insecure = bool(config.get("insecureSkipVerify"))
    if not secret and not bundle and not insecure:
        return None, []
    contents = _pair(cluster, host, secret) if secret else {}
    if bundle:
        contents["ca.crt"] = _decoded(cluster, host, str(bundle))
    return _tls_of(cluster, host, contents, insecure)


def _tls_of(
    cluster: ClusterContext, host: str, contents: Mapping[str, bytes], insecure: bool
) -> tuple[Mapping[str, Any], list[File]]:
    files = {
        name: File.of(f"{cluster.directories.distro}/etc/tls/registries/{host}/{name}", data) for name, data in contents.items()
    }
    paths = {name: file.path for name, file in files.items()}
    return {
        "ca_file": paths.get("ca.crt", ""),
        "cert_file": paths.get("tls.crt", ""),
        "key_file": paths.get("tls.key", ""),
        "insecure_skip_verify": insecure,
    }, list(files.values())


def _pair(cluster: ClusterContext, host: str, name: str) -> dict[str, bytes]:
    source = cluster.secret(name)
    if source.type != _TLS:
        raise cluster.refused(f"secret {name} for registry {host} is of type {source.type}, and not {_TLS}")
    return {key: source.data[key] for key in ("tls.crt", "tls.key") if source.data.get(key)}


def _decoded(cluster: ClusterContext, host: str, bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle, validate=True)
    except (binascii.Error, ValueError):
        raise cluster.refused(f"caBundle of registry {host} is no base64") from None


def _auth(cluster: ClusterContext, host: str, name: str) -> Auth:
    source = cluster.secret(name)
    found = _auth_of(source, host)
    if found is None:
        raise cluster.refused(f"secret {name} of type {source.type} holds no credentials for registry {host}")
    return found


def _auth_of(source: NamedObject, host: str) -> Auth | None:
    data = {key: value.decode(errors="replace") for key, value in source.data.items()}
    match source.type:
        case type_ if type_ == _AUTH_CONFIG:
            auth = base64.b64encode(source.data.get("auth", b"")).decode()
            return _written(data.get("username"), data.get("password"), auth, data.get("identityToken"))
        case type_ if type_ == _BASIC_AUTH:
            return _written(data.get("username"), data.get("password"))
        case type_ if type_ == _DOCKER:
            return _docker(source.data.get(_DOCKER_KEY, b""), host)
    return None


def _docker(data: bytes, host: str) -> Auth | None:
    try:
        said: Any = jsonio.loads(data)
    except jsonio.JsonError:
        return None
    entry = mapping(mapping(mapping(said).get("auths")).get(host))
    return _written(*(entry.get(key) for key in ("username", "password", "auth", "identitytoken"))) if entry else None


def _written(username: Any = "", password: Any = "", auth: Any = "", identity: Any = "") -> Auth:
    said = {"username": username, "password": password, "auth": auth, "identity_token": identity}
    return {key: str(value or "") for key, value in said.items()}


def _add_global(cluster: ClusterContext, configs: dict[str, Any]) -> None:
    """Add the credentials of the global registry, for a cluster that pulls from it and has no settings for it."""
    host = cluster.facts.default_registry.partition("/")[0]
    if not cluster.inherits_registry or host in configs:
        return
    found = next((auth for auth in (_auth_of(source, host) for source in cluster.facts.pull_secrets) if auth), None)
    if found:
        configs[host] = {"auth": found, "tls": None}


def _add_built_in(cluster: ClusterContext, configs: dict[str, Any]) -> list[File]:
    """Add our own CA for images that we serve ourselves."""
    built_in = cluster.facts.built_in_registry
    if built_in is None or not built_in.ca or built_in.host in configs:
        return []
    tls, files = _tls_of(cluster, built_in.host, {"ca.crt": built_in.ca.encode()}, insecure=False)
    configs[built_in.host] = {"auth": None, "tls": tls}
    return files


def _built_in_mirror(cluster: ClusterContext) -> dict[str, Any]:
    """A mirror with an https URL: agents take a registry on their own machine for one without TLS, and ours has TLS."""
    built_in = cluster.facts.built_in_registry
    if built_in is None or not built_in.ca or not _LOCAL.match(built_in.host):
        return {}
    return {built_in.host: {"endpoint": [f"https://{built_in.host}"]}}
