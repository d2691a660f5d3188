"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and, when asked, kube-controller-manager.

Tests use it as the truth that Remuda is compared with:

    with RealCluster(controllers=True) as cluster:
        cluster.kubectl("get", "namespaces")

and a person can keep one running with `python tests/real/cluster.py up`. The programs come from `build.py`, the
certificates from `pki.py`. Everything a cluster writes is in one directory, its logs included; it is removed on
`stop()` unless the caller named the directory.
"""

from __future__ import annotations

import argparse
import atexit
import base64
import ctypes
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.real import build, pki
from tests.real.etcd import EtcdCluster
from tests.real.ports import HOST, free_ports

SERVICE_RANGE = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"
ISSUER = "https://kubernetes.default.svc.cluster.local"
# Those that kube-apiserver makes for itself.
NAMESPACES = {"kube-system", "kube-public", "kube-node-lease", "default"}

# What Remuda's own kcm does; nothing that would make pods or move workloads.
CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "clusterrole-aggregation-controller",
    "disruption-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
)

_PR_SET_PDEATHSIG = 1


class ClusterError(Exception):
    """The real cluster could not be started; the message ends with the last lines of the log that matters."""


class RealCluster:
    """One real control plane; start with `start()` or `with`, end with `stop()`.

    controllers:   also start kube-controller-manager (garbage collection, namespaces, tokens, aggregation, PDB status);
                   a sequence names the controllers to run instead of the usual ones.
    fsync:         etcd waits for the disk. On for benches; off is quicker where only answers are compared.
    encrypt:       secrets are encrypted at rest with aesgcm.
    directory:     where everything lives; kept on stop. By default a temporary directory that goes away.
    etcd:          use this one, which runs and goes on after the end, instead of starting one.
    address:       where the API is served, and known to pods; loopback is no address that pods could use.
    nodes:         also start a scheduler and every controller, and know kubelets: see `node.py`.
    apiserver_args, etcd_args, controller_args: more flags; the last one given wins.
    """

    def __init__(
        self,
        *,
        controllers: bool | Sequence[str] = False,
        fsync: bool = True,
        encrypt: bool = False,
        token_webhook: str = "",
        directory: Path | None = None,
        etcd: EtcdCluster | None = None,
        address: str = HOST,
        nodes: bool = False,
        apiserver_args: Sequence[str] = (),
        etcd_args: Sequence[str] = (),
        controller_args: Sequence[str] = (),
    ) -> None:
        self._controllers = (CONTROLLERS if controllers else ()) if isinstance(controllers, bool) else controllers
        if nodes:
            self._controllers = ("*",)
        self._nodes = nodes
        self.address = address
        self._fsync = fsync
        self._encrypt = encrypt
        self._token_webhook = token_webhook
        self._keep = directory is not None
        self._etcd = etcd
        self._apiserver_args = tuple(apiserver_args)
        self._etcd_args = tuple(etcd_args)
        self._controller_args = tuple(controller_args)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._started = False
        self._stopped = False

        self.data_dir = (directory or Path(tempfile.mkdtemp(prefix="remuda-real-"))).resolve()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.ca_pem = self.data_dir / "ca.crt"
        self.admin_cert = self.data_dir / "admin.crt"
        self.admin_key = self.data_dir / "admin.key"
        self.service_account_key = self.data_dir / "service-account.key"
        self.kubeconfig = self.data_dir / "admin.kubeconfig"
        self.url = ""
        self.etcd_url = ""
        self.kubectl_path = Path("kubectl")

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by program name."""
        return {name: process.pid for name, process in self._processes.items()}

    def __enter__(self) -> RealCluster:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Build what is missing, start everything, return when it is ready for use."""
        if self._started:
            raise ClusterError("this cluster was started before; make a new one")
        self._started = True
        kubernetes = build.programs("kubernetes")
        etcd = build.programs("etcd")["etcd"]
        self.kubectl_path = kubernetes["kubectl"]
        atexit.register(self.stop)
        try:
            self._write_credentials()
            if self._etcd is None:
                self._start_etcd(etcd)
            else:
                self.etcd_url = ",".join(self._etcd.urls)
            self._start_apiserver(kubernetes["kube-apiserver"])
            if self._controllers:
                self._start_controllers(kubernetes["kube-controller-manager"])
            if self._nodes:
                self._start_scheduler(build.programs("kubelet")["kube-scheduler"])
        except BaseException:
            self._keep = True
            self.stop()
            raise

    def stop(self) -> None:
        """End the processes this object started, newest first, and remove the directory unless it was named."""
        if self._stopped:
            return
        self._stopped = True
        atexit.unregister(self.stop)
        for process in reversed(self._processes.values()):
            # Nothing here needs a graceful end: a test's cluster is thrown away, and kube-apiserver would drain for long.
            process.kill()
        for process in self._processes.values():
            process.wait()
        if not self._keep:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
        """One request as the administrator: status and parsed JSON (or text when it is not JSON)."""
        context = ssl.create_default_context(cafile=str(self.ca_pem))
        context.load_cert_chain(self.admin_cert, self.admin_key)
        port = urllib.parse.urlsplit(self.url).port
        connection = http.client.HTTPSConnection(self.address, port, context=context, timeout=60)
        try:
            content = None if body is None else json.dumps(body).encode()
            connection.request(method, path, content, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text

    def kubectl(self, *arguments: str, check: bool = True, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Real kubectl against this cluster."""
        return subprocess.run(
            # What kubectl keeps of a server it keeps by the port, which may have been another's an hour ago.
            [str(self.kubectl_path), f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.data_dir / 'kubectl'}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=check,
        )

    def log(self, program: str) -> str:
        """What a program wrote so far."""
        return (self.data_dir / f"{program}.log").read_text(errors="replace")

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _write_credentials(self) -> None:
        authority = self._authority = pki.Authority(self.data_dir)
        authority.serving("apiserver", tuple(dict.fromkeys((HOST, SERVICE_ADDRESS, self.address))))
        authority.client("admin", "kubernetes-admin", ("system:masters",))
        authority.client("kube-controller-manager", "system:kube-controller-manager", ("system:masters",))
        pki.service_account_key(self.data_dir)

    def _start_etcd(self, program: Path) -> None:
        client, peer = free_ports(2)
        self.etcd_url = f"http://{HOST}:{client}"
        peer_url = f"http://{HOST}:{peer}"
        flags = [
            "--name=default",
            f"--data-dir={self.data_dir / 'etcd'}",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--log-level=warn",
        ]
        if not self._fsync:
            flags.append("--unsafe-no-fsync")
        self._spawn("etcd", program, [*flags, *self._etcd_args])
        self._wait("etcd", self._etcd_is_healthy, 180)

    def _start_apiserver(self, program: Path) -> None:
        (port,) = free_ports(1)
        self.url = f"https://{self.address}:{port}"
        self._write_kubeconfig(self.kubeconfig, "admin")
        flags = [
            f"--etcd-servers={self.etcd_url}",
            f"--bind-address={self.address}",
            f"--secure-port={port}",
            *self._known_as(),
            f"--tls-cert-file={self.data_dir / 'apiserver.crt'}",
            f"--tls-private-key-file={self.data_dir / 'apiserver.key'}",
            f"--client-ca-file={self.ca_pem}",
            "--authorization-mode=RBAC",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={self.service_account_key}",
            f"--service-account-signing-key-file={self.service_account_key}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--cert-dir={self.data_dir}",
        ]
        if self._etcd is not None and self._etcd.ca is not None:
            flags += [
                f"--etcd-cafile={self._etcd.ca}",
                f"--etcd-certfile={self._etcd.client_certificate}",
                f"--etcd-keyfile={self._etcd.client_key}",
            ]
        if self._nodes:
            self._authority.client("kubelet-client", "kube-apiserver-kubelet-client", ("system:masters",))
            flags += [
                "--allow-privileged",
                "--kubelet-preferred-address-types=InternalIP",
                f"--kubelet-client-certificate={self.data_dir / 'kubelet-client.crt'}",
                f"--kubelet-client-key={self.data_dir / 'kubelet-client.key'}",
            ]
        if self._encrypt:
            flags.append(f"--encryption-provider-config={self._write_encryption_config()}")
        if self._token_webhook:
            # What it was told it believes for long, else.
            flags += [
                f"--authentication-token-webhook-config-file={self._write_webhook()}",
                "--authentication-token-webhook-cache-ttl=1s",
            ]
        self._spawn("kube-apiserver", program, [*flags, *self._apiserver_args])
        self._wait("kube-apiserver", self._is_of_use, 400)

    def _is_of_use(self) -> bool:
        """It says that it is ready before it has made its namespaces, and before it knows which addresses services may have."""
        if self.request("GET", "/readyz")[0] != 200:
            return False
        status, found = self.request("GET", "/api/v1/namespaces")
        if status != 200 or not {each["metadata"]["name"] for each in found["items"]} >= NAMESPACES:
            return False
        service = {"metadata": {"name": "of-use"}, "spec": {"ports": [{"port": 80}], "clusterIP": "10.96.255.254"}}
        return self.request("POST", "/api/v1/namespaces/default/services?dryRun=All", service)[0] == 201

    def _write_webhook(self) -> Path:
        context = {"cluster": "webhook", "user": "webhook"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "webhook", "cluster": {"server": self._token_webhook}}],
            "users": [{"name": "webhook", "user": {}}],
            "contexts": [{"name": "webhook", "context": context}],
            "current-context": "webhook",
        }
        path = self.data_dir / "token-webhook.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def _known_as(self) -> list[str]:
        if self.address == HOST:
            # A loopback server has no address that pods could use, so it publishes no endpoints for itself.
            return ["--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none"]
        return [f"--advertise-address={self.address}"]

    def kubeconfig_for(self, file_name: str, user: str, groups: tuple[str, ...]) -> Path:
        """A kubeconfig for somebody with a certificate of this cluster."""
        path = self.data_dir / f"{file_name}.kubeconfig"
        self._authority.client(file_name, user, groups)
        self._write_kubeconfig(path, file_name)
        return path

    def _start_scheduler(self, program: Path) -> None:
        kubeconfig = self.kubeconfig_for("kube-scheduler", "system:kube-scheduler", ("system:masters",))
        (port,) = free_ports(1)
        flags = [f"--kubeconfig={kubeconfig}", "--leader-elect=false", f"--secure-port={port}", f"--bind-address={HOST}"]
        self._spawn("kube-scheduler", program, [*flags, f"--cert-dir={self.data_dir}"])

    def _start_controllers(self, program: Path) -> None:
        kubeconfig = self.data_dir / "kube-controller-manager.kubeconfig"
        self._write_kubeconfig(kubeconfig, "kube-controller-manager")
        flags = [
            f"--kubeconfig={kubeconfig}",
            f"--controllers={','.join(self._controllers)}",
            "--leader-elect=false",
            "--use-service-account-credentials=false",
            f"--service-account-private-key-file={self.service_account_key}",
            f"--root-ca-file={self.ca_pem}",
            "--secure-port=0",
            # The usual spread of start times exists for large clusters; here it would only make tests wait.
            "--controller-start-interval=0s",
            # A quota of a kind that is new is counted at the next full look.
            "--resource-quota-sync-period=5s",
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
        ]
        self._spawn("kube-controller-manager", program, [*flags, *self._controller_args])
        self._wait("kube-controller-manager", self._namespace_is_furnished, 300)

    def _namespace_is_furnished(self) -> bool:
        wanted = []
        if self._nodes or "serviceaccount-controller" in self._controllers:
            wanted.append("/api/v1/namespaces/default/serviceaccounts/default")
        if self._nodes or "root-ca-certificate-publisher-controller" in self._controllers:
            wanted.append("/api/v1/namespaces/default/configmaps/kube-root-ca.crt")
        return all(self.request("GET", path)[0] == 200 for path in wanted)

    def _etcd_is_healthy(self) -> bool:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.etcd_url).netloc, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        finally:
            connection.close()

    def _write_encryption_config(self) -> Path:
        key = base64.b64encode(os.urandom(32)).decode()
        providers = [{"aesgcm": {"keys": [{"name": "key1", "secret": key}]}}, {"identity": {}}]
        config = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "EncryptionConfiguration",
            "resources": [{"resources": ["secrets"], "providers": providers}],
        }
        path = self.data_dir / "encryption.json"
        path.write_text(json.dumps(config))
        return path

    def _write_kubeconfig(self, path: Path, user: str) -> None:
        def embedded(file: Path) -> str:
            return base64.b64encode(file.read_bytes()).decode()

        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "real",
                    "cluster": {"server": self.url, "certificate-authority-data": embedded(self.ca_pem)},
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": embedded(self.data_dir / f"{user}.crt"),
                        "client-key-data": embedded(self.data_dir / f"{user}.key"),
                    },
                }
            ],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": user}}],
            "current-context": "real",
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=2))

    def _spawn(self, name: str, program: Path, flags: list[str]) -> None:
        # A killed test run must not leave servers behind. The kernel ties that signal to the starting thread, so it is
        # only asked for where that thread lives as long as the process.
        in_main = threading.current_thread() is threading.main_thread()
        with (self.data_dir / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [str(program), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.data_dir,
                preexec_fn=_die_with_parent if in_main else None,
                start_new_session=True,
            )

    def _wait(self, name: str, ready: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            code = self._processes[name].poll()
            if code is not None:
                raise ClusterError(f"{name} ended with code {code}:\n{self._tail(name)}")
            try:
                if ready():
                    return
            except (OSError, http.client.HTTPException):
                pass
            if time.monotonic() > deadline:
                raise ClusterError(f"{name} was not ready after {seconds:.0f} s:\n{self._tail(name)}")
            time.sleep(0.05)

    def _tail(self, name: str) -> str:
        return "\n".join(self.log(name).splitlines()[-20:])


# Looked up here: between fork and exec another thread may hold the loader's lock for ever.
_prctl = ctypes.CDLL(None).prctl


def _die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Keep a real Kubernetes control plane running on loopback.")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start one, print its kubeconfig, run until interrupted")
    up.add_argument("--no-controllers", action="store_true", help="leave kube-controller-manager out")
    up.add_argument("--fsync", action="store_true", help="etcd waits for the disk")
    up.add_argument("--encrypt", action="store_true", help="encrypt secrets at rest")
    up.add_argument("--directory", type=Path, help="where to keep everything (default: temporary)")
    up.add_argument("--address", default=HOST, help="where to serve the API (default: loopback)")
    up.add_argument(
        "--node", action="store_true", help="with a node; needs a network namespace of its own and an --address in it"
    )
    up.add_argument("--registries", type=Path, help="a directory that tells the node how to reach registries (certs.d)")
    up.add_argument("--token-webhook", default="", metavar="URL", help="whom to ask about tokens")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with ExitStack() as stack:
            cluster = stack.enter_context(
                RealCluster(
                    controllers=not chosen.no_controllers,
                    fsync=chosen.fsync,
                    encrypt=chosen.encrypt,
                    directory=chosen.directory,
                    address=chosen.address,
                    nodes=chosen.node,
                    token_webhook=chosen.token_webhook,
                )
            )
            if chosen.node:
                from tests.real.node import Node

                stack.enter_context(Node(cluster, registries=chosen.registries))
            print(f"KUBECONFIG={cluster.kubeconfig}")
            print(f"URL={cluster.url}")
            print(f"KUBECTL={cluster.kubectl_path}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except (ClusterError, build.BuildError) as error:
        print(error, file=sys.stderr)
        return getattr(error, "code", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
