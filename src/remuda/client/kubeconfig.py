"""The API server's address and our credentials: kubeconfig files, or the service account of the pod we run in.

Reading is pure: :func:`load` merges the files of `KUBECONFIG` as kubectl does (the first file to name something wins) and
:func:`select` picks a context out of the result. Credentials that must be read again later (token files, exec plug-ins) are a
:class:`~remuda.client.credentials.CredentialSource`; :mod:`remuda.client.https` connects.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from remuda.kube.encoding import yamlio

Obj = dict[str, Any]

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConfigError(Exception):
    """A kubeconfig that can't be used; the message says which part of which file."""


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that prints an ExecCredential; `client-go`'s credential plug-ins."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    provide_cluster_info: bool = False


@dataclass(frozen=True, slots=True)
class KubeTarget:
    """One API server and one identity on it. PEM material is bytes, read when the target was made."""

    server: str
    namespace: str = "default"
    ca: bytes = b""
    insecure: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    client_certificate: bytes = b""
    client_key: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    exec_plugin: ExecPlugin | None = None
    impersonate: str = ""
    impersonate_uid: str = ""
    impersonate_groups: tuple[str, ...] = ()
    impersonate_extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    cluster_config: Any = None  # handed to an exec plug-in that asks for the cluster

    def without_identity(self) -> KubeTarget:
        """The same server for requests that need no credentials."""
        return KubeTarget(
            self.server,
            ca=self.ca,
            insecure=self.insecure,
            tls_server_name=self.tls_server_name,
            proxy_url=self.proxy_url,
        )


def default_paths(environ: Mapping[str, str] | None = None) -> list[Path]:
    """The files kubectl would read: those of `KUBECONFIG`, else ~/.kube/config."""
    values = os.environ if environ is None else environ
    listed = [Path(part) for part in values.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        return listed
    home = values.get("HOME")
    return [(Path(home) if home else Path.home()) / ".kube" / "config"]


def load(paths: Sequence[Path]) -> Obj:
    """The merged configuration. Files that do not exist are left out; relative file names are resolved per file."""
    merged: Obj = {"clusters": {}, "users": {}, "contexts": {}, "current-context": ""}
    for path in paths:
        document = _read(path)
        if document is not None:
            _merge(merged, document, path)
    return merged


def parse(content: bytes, path: Path) -> Obj:
    """As :func:`load`, for content that is already in memory; `path` is its file, real or assumed."""
    merged: Obj = {"clusters": {}, "users": {}, "contexts": {}, "current-context": ""}
    _merge(merged, _document(content, path), path)
    return merged


def select(config: Obj, context: str = "") -> KubeTarget:
    """The target of `context`, or of the current one. A name may be empty, as in client-go: a user with an empty name is the user
    of a context that names none."""
    wanted = context or config["current-context"]
    if not wanted and wanted not in config["contexts"]:
        raise ConfigError("no context is chosen: set current-context in the kubeconfig or name a context")
    found = config["contexts"].get(wanted)
    if found is None:
        raise ConfigError(f'context "{wanted}" does not exist')
    cluster_name, user_name = str(found.get("cluster") or ""), str(found.get("user") or "")
    cluster = config["clusters"].get(cluster_name)
    if cluster is None:
        raise ConfigError(f'context "{wanted}" names the cluster "{cluster_name}", which does not exist')
    user = config["users"].get(user_name)
    if user is None and user_name:
        raise ConfigError(f'context "{wanted}" names the user "{user_name}", which does not exist')
    return _target(cluster, user or {}, str(found.get("namespace") or "") or "default")


def in_cluster(environ: Mapping[str, str] | None = None, directory: Path = _SERVICE_ACCOUNT) -> KubeTarget | None:
    """The API server of the cluster in which this process is a pod; None outside of a pod."""
    values = os.environ if environ is None else environ
    host, port = values.get("KUBERNETES_SERVICE_HOST", ""), values.get("KUBERNETES_SERVICE_PORT", "")
    token_file = directory / "token"
    if not host or not port or not token_file.exists():
        return None
    namespace = directory / "namespace"
    return KubeTarget(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        ca=_file(directory / "ca.crt"),
        token_file=token_file,
    )


def discover(context: str = "", environ: Mapping[str, str] | None = None) -> KubeTarget:
    """The default target of a command: a kubeconfig if there is one, else the pod's own cluster."""
    paths = default_paths(environ)
    if context or any(path.exists() for path in paths):
        return select(load(paths), context)
    found = in_cluster(environ)
    if found is None:
        tried = ", ".join(str(path) for path in paths)
        raise ConfigError(f"there is no kubeconfig ({tried}) and this is no pod: set KUBECONFIG or name a file")
    return found


# ---------------------------------------------------------------------------------------------------------------------


def _merge(merged: Obj, document: Obj, path: Path) -> None:
    merged["current-context"] = merged["current-context"] or str(document.get("current-context") or "")
    for section, entry_field in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
        for name, value in _entries(document, section, entry_field, path):
            merged[section].setdefault(name, _absolute(value, path.parent))


def _read(path: Path) -> Obj | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from None
    return _document(content, path)


def _document(content: bytes, path: Path) -> Obj:
    try:
        document = yamlio.loads(content)
    except yamlio.YamlError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path} is not a kubeconfig")
    return document


def _entries(document: Obj, section: str, entry_field: str, path: Path) -> list[tuple[str, Obj]]:
    listed = document.get(section) or []
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise ConfigError(f"{section} of {path} is not a list of named entries")
    found = []
    for item in listed:
        name, value = str(item.get("name") or ""), item.get(entry_field) or {}
        if not isinstance(value, dict):
            raise ConfigError(f"{section} {name} of {path} has no {entry_field}")
        found.append((name, value))
    return found


_FILE_FIELDS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def _absolute(entry: Obj, directory: Path) -> Obj:
    resolved = dict(entry)
    for name in _FILE_FIELDS:
        if resolved.get(name):
            resolved[name] = str(directory / str(resolved[name]))
    plugin = resolved.get("exec")
    # A bare command is looked up on PATH; one with a slash is relative to the file, as in kubectl.
    if isinstance(plugin, dict) and "/" in str(plugin.get("command") or ""):
        resolved["exec"] = {**plugin, "command": str(directory / str(plugin["command"]))}
    return resolved


def _target(cluster: Obj, user: Obj, namespace: str) -> KubeTarget:
    server = str(cluster.get("server") or "")
    if not server:
        raise ConfigError("the cluster has no server")
    if "://" not in server:
        server = f"https://{server}"
    proxy = str(cluster.get("proxy-url") or "")
    _check_url("server", server, ("http", "https"))
    if proxy:
        _check_url("proxy-url", proxy, ("http", "https", "socks5"))
    insecure = bool(cluster.get("insecure-skip-tls-verify"))
    ca = _material(cluster, "certificate-authority")
    if insecure and ca:
        raise ConfigError("insecure-skip-tls-verify and a certificate authority are both set: keep one of them")
    certificate, key = _material(user, "client-certificate"), _material(user, "client-key")
    if bool(certificate) != bool(key):
        raise ConfigError("a client certificate and its key must be given together")
    plugin = _exec_plugin(user.get("exec"))
    extra = user.get("as-user-extra") or {}
    if not isinstance(extra, dict) or not all(isinstance(values, list) for values in extra.values()):
        raise ConfigError("as-user-extra of the user is no map of lists")
    return KubeTarget(
        server=server.rstrip("/"),
        namespace=namespace,
        ca=ca,
        insecure=insecure,
        tls_server_name=str(cluster.get("tls-server-name") or ""),
        proxy_url=proxy,
        client_certificate=certificate,
        client_key=key,
        token=str(user.get("token") or ""),
        token_file=Path(str(user["tokenFile"])) if user.get("tokenFile") else None,
        username=str(user.get("username") or ""),
        password=str(user.get("password") or ""),
        exec_plugin=plugin,
        impersonate=str(user.get("as") or ""),
        impersonate_uid=str(user.get("as-uid") or ""),
        impersonate_groups=tuple(str(group) for group in _listed(user, "as-groups")),
        impersonate_extra=tuple((str(key), tuple(str(value) for value in values)) for key, values in extra.items()),
        cluster_config=_exec_cluster_config(cluster) if plugin is not None and plugin.provide_cluster_info else None,
    )


def _check_url(field: str, text: str, schemes: tuple[str, ...]) -> None:
    try:
        url = urlsplit(text)
        good = url.scheme in schemes and url.hostname and (url.port or 1) > 0
    except ValueError:
        good = False
    if not good or not text.isprintable():
        raise ConfigError(f"{field} of the cluster is no URL: {text!r}")


def _material(entry: Obj, name: str) -> bytes:
    """PEM that is either inline or in a file; inline wins, as in kubectl."""
    inline = entry.get(f"{name}-data")
    if inline:
        try:
            return base64.b64decode(str(inline), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(f"{name}-data is not base64") from None
    return _file(Path(str(entry[name]))) if entry.get(name) else b""


def _listed(entry: Obj, name: str, members: bool = False) -> list[Any]:
    """A list of strings, or of objects with a name."""
    found = entry.get(name) or []
    if not isinstance(found, list) or (members and not all(isinstance(item, dict) and item.get("name") for item in found)):
        raise ConfigError(f"{name} is no list{' of named entries' if members else ''}")
    return found


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from None
    except ValueError as error:
        # A zero byte, or an incomplete character.
        raise ConfigError(f"{str(path)!r} can't be read: {error}") from None


def _exec_plugin(entry: Any) -> ExecPlugin | None:
    if not entry:
        return None
    if not isinstance(entry, dict) or not entry.get("command"):
        raise ConfigError("the user's exec plug-in has no command")
    api_version = str(entry.get("apiVersion") or "")
    if api_version not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
        raise ConfigError(f'the exec plug-in {entry["command"]} speaks "{api_version}", which is not known')
    if entry.get("interactiveMode") == "Always":
        raise ConfigError(f"the exec plug-in {entry['command']} wants to talk to a person, which is not possible here")
    return ExecPlugin(
        command=str(entry["command"]),
        args=tuple(str(argument) for argument in _listed(entry, "args")),
        env=tuple((str(item["name"]), str(item.get("value") or "")) for item in _listed(entry, "env", members=True)),
        api_version=api_version,
        install_hint=str(entry.get("installHint") or ""),
        provide_cluster_info=bool(entry.get("provideClusterInfo")),
    )


def _exec_cluster_config(cluster: Obj) -> Any:
    for extension in _listed(cluster, "extensions", members=True):
        if extension["name"] == "client.authentication.k8s.io/exec":
            return extension.get("extension")
    return None
