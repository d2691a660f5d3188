"""The settings of a host: one immutable value, made of files, variables and the command line."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import arguments
from .arguments import KINDS, LISTS, CommandLine, ConfigError, Kind, seconds

# In all names that k3s makes of its own: paths, kinds of requests, annotations.
NAME = "remuda"
SUPERVISOR_PORT, API_PORT = 9345, 6443
ETCD_PORT, ETCD_PEER_PORT, ETCD_METRICS_PORT = 2379, 2380, 2381
CONTROLLER_MANAGER_PORT, SCHEDULER_PORT, KUBELET_PORT = 10257, 10259, 10248
DEFAULT_RELEASE = "v1.36.0+remuda1"
EVERY_TWELVE_HOURS = "0 */12 * * *"
# As Kubernetes has them: the interval of a node's heartbeats, and the silence after which it is not ready.
REPORT_SECONDS, GRACE_SECONDS = 10.0, 50.0

# Settings from variables, unless a file or the command line sets them.
_VARIABLES = {
    "REMUDA_TOKEN": "token",
    "REMUDA_TOKEN_FILE": "token-file",
    "REMUDA_AGENT_TOKEN": "agent-token",
    "REMUDA_URL": "server",
    "REMUDA_NODE_NAME": "node-name",
    "REMUDA_DATA_DIR": "data-dir",
    "REMUDA_RELEASE": "release",
    "REMUDA_ETCD_BINARY": "etcd-binary",
    "REMUDA_ETCDUTL_BINARY": "etcdutl-binary",
    "REMUDA_DEMO_ETCD": "demo-etcd",
    "AWS_ACCESS_KEY_ID": "etcd-s3-access-key",
    "AWS_SECRET_ACCESS_KEY": "etcd-s3-secret-key",
    "AWS_SESSION_TOKEN": "etcd-s3-session-token",
}


@dataclass(frozen=True, slots=True)
class Snapshots:
    """The settings for snapshots of this host's etcd."""

    directory: Path
    name: str = "etcd-snapshot"
    schedule: str = EVERY_TWELVE_HOURS
    retention: int = 5
    disabled: bool = False
    compress: bool = False
    s3: bool = False


@dataclass(frozen=True, slots=True)
class Component:
    """The health port of a control plane component, and the directory of its certificate."""

    port: int
    directory: Path


@dataclass(frozen=True, slots=True)
class Settings:
    """`values` has all settings, for the rarely used ones."""

    paths: Paths
    node_name: str
    release: str
    token: str = field(default="", repr=False)
    agent_token: str = field(default="", repr=False)
    server_url: str = ""
    node_ips: tuple[str, ...] = ("127.0.0.1",)
    external_ips: tuple[str, ...] = ()
    bind_address: str = "0.0.0.0"
    advertise_address: str = ""
    supervisor_port: int = SUPERVISOR_PORT
    api_port: int = API_PORT
    tls_san: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    has_api: bool = True
    has_etcd: bool = True
    has_controllers: bool = True
    has_scheduler: bool = True
    has_agent: bool = True
    cluster_init: bool = False
    cluster_reset: bool = False
    restore_path: str = ""
    kubeconfig: Path = Path(f"/etc/rancher/{NAME}/{NAME}.yaml")
    kubeconfig_mode: int = 0o600
    disabled: frozenset[str] = frozenset()
    etcd_args: tuple[str, ...] = ()
    etcd_binary: str = ""
    etcdutl_binary: str = ""
    # Accept an etcd that is too old for real data: to try it out where there is no other.
    demo_etcd: bool = False
    # The interval of the node's heartbeats, and the silence after which the cluster marks a node as not ready.
    node_report_seconds: float = REPORT_SECONDS
    node_grace_seconds: float = GRACE_SECONDS
    snapshots: Snapshots = Snapshots(Path(f"/var/lib/rancher/{NAME}/server/db/snapshots"))
    controller_manager: Component = Component(CONTROLLER_MANAGER_PORT, Path("kube-controller-manager"))
    scheduler: Component = Component(SCHEDULER_PORT, Path("kube-scheduler"))
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def address(self) -> str:
        """The address at which others reach this host."""
        return self.advertise_address or self.node_ips[0]

    @property
    def loopback(self) -> str:
        """The address at which this host reaches itself; each of several hosts on one machine has its own."""
        return self.node_ips[0] if _is_loopback(self.node_ips[0]) else "127.0.0.1"

    @property
    def supervisor_url(self) -> str:
        return f"https://{in_url(self.address)}:{self.supervisor_port}"

    @property
    def api_url(self) -> str:
        return f"https://{in_url(self.address)}:{self.api_port}"

    @property
    def local_api_url(self) -> str:
        return f"https://{self.loopback}:{self.api_port}"

    @property
    def shares_port(self) -> bool:
        """The supervisor answers on the API's port, as in k3s; otherwise on its own, as in RKE2."""
        return self.supervisor_port == self.api_port and self.has_api

    def etcd_url(self, port: int = ETCD_PORT) -> str:
        return f"https://{in_url(self.node_ips[0])}:{port}"

    @property
    def joins(self) -> bool:
        return bool(self.server_url)


def load(line: CommandLine, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of this host. Raises ConfigError."""
    root = Path(line.values.get("root") or environment.get("REMUDA_ROOT") or "/")
    named = line.values.get("config") or environment.get("REMUDA_CONFIG_FILE")
    file = Path(named) if named else root / f"etc/rancher/{NAME}/config.yaml"
    said = {key: environment[variable] for variable, key in _VARIABLES.items() if environment.get(variable)}
    values = arguments.with_arguments({**said, **arguments.read(file)}, line.values, LISTS)
    return of(values, root)


def of(values: Mapping[str, Any], root: Path = Path("/")) -> Settings:
    """Raises ConfigError."""
    said = _Said(values)
    paths = Paths(_below(root, said.text("data-dir") or f"/var/lib/rancher/{NAME}"), root)
    ips = tuple(said.separated("node-ip")) or (_own_address(),)
    if not said.text("server") and said.truth("disable-etcd"):
        raise ConfigError("disable-etcd needs a server to join, since the state must be somewhere")
    if said.truth("disable-etcd") and said.truth("disable-apiserver"):
        raise ConfigError("a server without an API and without etcd would do nothing: run an agent")
    return Settings(
        paths=paths,
        node_name=(said.text("node-name") or _hostname(root)).lower(),
        release=said.text("release") or _installed_release(paths) or DEFAULT_RELEASE,
        token=_token(said.text("token"), said.text("token-file")),
        agent_token=_token(said.text("agent-token"), said.text("agent-token-file")),
        server_url=said.text("server").rstrip("/"),
        node_ips=ips,
        external_ips=tuple(said.separated("node-external-ip")),
        bind_address=said.text("bind-address") or (ips[0] if _is_loopback(ips[0]) and ips[0] != "127.0.0.1" else "0.0.0.0"),
        advertise_address=said.text("advertise-address"),
        supervisor_port=said.number("supervisor-port", SUPERVISOR_PORT),
        api_port=said.number("https-listen-port", API_PORT),
        tls_san=tuple(said.separated("tls-san")),
        labels=tuple(said.listed("node-label")),
        taints=tuple(said.listed("node-taint")),
        has_api=not said.truth("disable-apiserver"),
        has_etcd=not said.truth("disable-etcd"),
        has_controllers=not said.truth("disable-controller-manager"),
        has_scheduler=not said.truth("disable-scheduler"),
        has_agent=not said.truth("disable-agent"),
        cluster_init=said.truth("cluster-init"),
        cluster_reset=said.truth("cluster-reset"),
        restore_path=said.text("cluster-reset-restore-path"),
        kubeconfig=_below(root, said.text("write-kubeconfig") or f"/etc/rancher/{NAME}/{NAME}.yaml"),
        kubeconfig_mode=_mode(said.text("write-kubeconfig-mode")),
        disabled=frozenset(said.separated("disable")),
        etcd_args=tuple(said.listed("etcd-arg")),
        etcd_binary=said.text("etcd-binary"),
        etcdutl_binary=said.text("etcdutl-binary"),
        demo_etcd=said.truth("demo-etcd") or _brought_a_demos(said, paths),
        node_report_seconds=seconds(values, "kubelet-arg", "node-status-update-frequency", REPORT_SECONDS),
        node_grace_seconds=seconds(values, "kube-controller-manager-arg", "node-monitor-grace-period", GRACE_SECONDS),
        snapshots=_snapshots(said, paths),
        controller_manager=_component(said, "kube-controller-manager", CONTROLLER_MANAGER_PORT, paths),
        scheduler=_component(said, "kube-scheduler", SCHEDULER_PORT, paths),
        values=dict(values),
    )


class _Said:
    """The values, each read as its kind."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def text(self, key: str) -> str:
        assert KINDS[key] is Kind.TEXT, key
        value = self._values.get(key)
        return "" if value is None else str(value).strip()

    def truth(self, key: str) -> bool:
        assert KINDS[key] is Kind.TRUTH, key
        return arguments.truth(self._values.get(key) or False, key)

    def number(self, key: str, default: int) -> int:
        assert KINDS[key] is Kind.NUMBER, key
        value = self._values.get(key)
        return default if value in (None, "") else arguments.number(value, key)

    def listed(self, key: str) -> list[str]:
        assert KINDS[key] is Kind.LIST, key
        return arguments.listed(self._values.get(key))

    def separated(self, key: str) -> list[str]:
        assert KINDS[key] is Kind.LIST, key
        return arguments.separated(self._values.get(key))


def _snapshots(said: _Said, paths: Paths) -> Snapshots:
    return Snapshots(
        directory=_below(paths.root, said.text("etcd-snapshot-dir") or str(paths.snapshots)),
        name=said.text("name") or said.text("etcd-snapshot-name") or "etcd-snapshot",
        schedule=said.text("etcd-snapshot-schedule-cron") or EVERY_TWELVE_HOURS,
        retention=said.number("snapshot-retention", said.number("etcd-snapshot-retention", 5)),
        disabled=said.truth("etcd-disable-snapshots"),
        compress=said.truth("etcd-snapshot-compress"),
        s3=said.truth("etcd-s3"),
    )


def _component(said: _Said, name: str, port: int, paths: Paths) -> Component:
    told = dict(argument.removeprefix("--").partition("=")[::2] for argument in said.listed(f"{name}-arg"))
    directory = Path(told["tls-cert-file"]).parent if told.get("tls-cert-file") else None
    found = _below(paths.root, str(directory or told.get("cert-dir") or paths.tls / name))
    return Component(arguments.number(told.get("secure-port") or port, f"secure-port of {name}"), found)


def _below(root: Path, named: str) -> Path:
    """The path of a host that is only a directory for an ordinary one; a path below its root stays."""
    path = Path(os.path.normpath(named))
    if root == Path("/") or path.is_relative_to(root):
        return path
    return root / str(path).lstrip("/")


def _token(text: str, file: str) -> str:
    if text or not file:
        return text
    try:
        return Path(file).read_text().strip()
    except OSError as error:
        raise ConfigError(f"the token can't be read from {file}: {error.strerror}") from None


def _mode(text: str) -> int:
    try:
        return int(text, 8) if text else 0o600
    except ValueError:
        raise ConfigError(f"write-kubeconfig-mode is like 0600, not {text!r}") from None


def _installed_release(paths: Paths) -> str:
    """The release that the installer has recorded."""
    try:
        return (paths.data / "release").read_text().strip()
    except OSError:
        return ""


def _brought_a_demos(said: _Said, paths: Paths) -> bool:
    """Tells whether etcd is the installer's, which has marked it as for demonstrations only."""
    return not said.text("etcd-binary") and (paths.data / "bin" / "etcd.demo").is_file()


def _hostname(root: Path) -> str:
    if root != Path("/"):
        try:
            found = (root / "etc/hostname").read_text().strip()
        except OSError:
            found = ""
        if found:
            return found
    return socket.gethostname()


def _own_address() -> str:
    """The address of the default route, without sending anything."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        raise ConfigError(f"node-ip is an address, not {address!r}") from None


def in_url(address: str) -> str:
    """An address as it is written in URLs."""
    return f"[{address}]" if ":" in address else address


# --- paths -----------------------------------------------------------------------------------------------------------------
#
# Paths of the distribution's files on a host: k3s' names below the data directory.


@dataclass(frozen=True, slots=True)
class Paths:
    """`root` is the prefix of paths outside the data directory, for a host that is only a directory."""

    data: Path
    root: Path = Path("/")

    @property
    def server(self) -> Path:
        return self.data / "server"

    @property
    def tls(self) -> Path:
        return self.server / "tls"

    @property
    def etcd_tls(self) -> Path:
        return self.tls / "etcd"

    @property
    def token(self) -> Path:
        return self.server / "token"

    @property
    def node_token(self) -> Path:
        return self.server / "node-token"

    @property
    def agent_token(self) -> Path:
        return self.server / "agent-token"

    @property
    def manifests(self) -> Path:
        return self.server / "manifests"

    @property
    def db(self) -> Path:
        return self.server / "db"

    @property
    def etcd(self) -> Path:
        return self.db / "etcd"

    @property
    def etcd_name(self) -> Path:
        return self.etcd / "name"

    @property
    def tombstone(self) -> Path:
        """Exists when the member was removed: its data must not be used again."""
        return self.etcd / "tombstone"

    @property
    def snapshots(self) -> Path:
        return self.db / "snapshots"

    @property
    def commands(self) -> Path:
        """Locked by commands that operations run."""
        return self.db / ".commands"

    @property
    def failed_snapshots(self) -> Path:
        return self.db / ".failed"

    @property
    def remote_snapshots_changed(self) -> Path:
        """Written whenever a command has changed the snapshots in the bucket."""
        return self.db / ".s3-changed"

    @property
    def reset_flag(self) -> Path:
        """Exists after a reset, until the server has started as usual."""
        return self.db / "reset-flag"

    @property
    def agent(self) -> Path:
        return self.data / "agent"

    @property
    def node_password(self) -> Path:
        return self.root / "etc/rancher/node/password"
