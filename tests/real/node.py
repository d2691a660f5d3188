"""A real Kubernetes node: containerd, kubelet and kube-proxy, in namespaces of their own on this machine.

    with RealCluster(nodes=True, address="192.0.2.2") as cluster, Node(cluster) as node:
        cluster.kubectl("run", "one", f"--image={BUSYBOX}", "--restart=Never", "--", "sleep", "1000")

The programs come from `build.py`; runc, the network plug-ins and the one program in the image are Debian's (`make test-deps`).
The node has its own processes, mounts and control groups, and the network of whoever starts it, which must not be the machine's
own: it makes a bridge and rules there. When it stops, all its processes, pods too, go at once with their process namespace.
`python -m tests.real.cluster up --address A --node` is both in one command, to be put into a network namespace.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from remuda.images.layout import Image, Layout
from remuda.images.tree import Tree, layer_of
from tests.real import build
from tests.real.cluster import ClusterError, RealCluster
from tests.real.ports import HOST, free_ports

BUSYBOX = "remuda.test/busybox:1"
PODS = "10.244.1.0/24"
_BUSYBOX_PROGRAM = Path("/bin/busybox")
_NETWORK_PLUGINS = Path("/usr/lib/cni")
_RUNC = Path("/usr/sbin/runc")
_COMMANDS = (
    *("sh", "sleep", "cat", "echo", "tar", "nc", "ls", "id", "env", "head", "dd", "sha256sum", "httpd", "wget", "seq"),
    *("true", "yes", "stat", "mkdir", "rm", "mkfifo"),
)
_CONTROLLERS = ("blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids", "systemd")

# Its own control groups first, as the root of what it sees of them; then mounts and processes. The shell stays as process 1,
# which takes in what pods leave behind.
_MOUNT = """
put() {
  mkdir -p "$2"
  if [ "$1" = systemd ]; then mount -t cgroup -o none,name=systemd cgroup "$2"; else mount -t cgroup -o "$1" cgroup "$2"; fi
}
"""
_OUTER = f"""
set -e{_MOUNT}
cd "$1"
for controller in $2; do
  put "$controller" "groups/$controller"
  group="groups/$controller/$3"
  mkdir -p "$group"
  if [ "$controller" = cpuset ]; then
    cat "groups/cpuset/cpuset.cpus" > "$group/cpuset.cpus"
    cat "groups/cpuset/cpuset.mems" > "$group/cpuset.mems"
  fi
  echo $$ > "$group/cgroup.procs"
done
exec unshare --cgroup --mount --pid --fork --kill-child=KILL --mount-proc sh -c "$4" sh "$1" "$2"
"""
_INNER = f"""
set -e{_MOUNT}
mount -t tmpfs tmpfs /run
mount -t tmpfs cgroups /sys/fs/cgroup
for controller in $2; do
  put "$controller" "/sys/fs/cgroup/$controller"
done
mkdir -p /run/lock
mount --make-rshared /
echo 1 > /proc/sys/net/ipv4/ip_forward
: > "$1/ready"
while :; do sleep 1; done
"""
# Groups go from the innermost outward, and only when the last process in them is gone, which takes a moment.
_CLEAN = f"""
{_MOUNT}
cd "$1"
for controller in $2; do
  put "$controller" "groups/$controller"
  for attempt in 1 2 3 4 5 6 7 8 9 10; do
    find "groups/$controller/$3" -depth -type d -exec rmdir {{}} + && break
    sleep 0.2
  done
done
"""
_NETWORK = """
table ip remuda-pods {{
  chain postrouting {{ type nat hook postrouting priority 100; ip saddr {pods} oifname != "pods0" masquerade; }}
}}
"""
_JOIN = 'for group in /sys/fs/cgroup/*; do echo $$ > "$group/cgroup.procs"; done; exec "$@"'


def problem() -> str:
    """Why no node can run here; empty when one can."""
    if os.geteuid() != 0:
        return "a node needs root"
    # Also where /sys is another one, as below `ip netns exec`.
    if ":memory:" not in Path("/proc/self/cgroup").read_text():
        return "nodes are set up for control groups of version 1"
    missing = [str(path) for path in (_BUSYBOX_PROGRAM, _NETWORK_PLUGINS / "bridge", _RUNC) if not path.exists()]
    return f"not there: {', '.join(missing)}: make test-deps" if missing else ""


class Node:
    """One node of a cluster that was made with `nodes=True`. `registries` is a directory as containerd's certs.d."""

    def __init__(self, cluster: RealCluster, name: str = "node-1", pods: str = PODS, registries: Path | None = None) -> None:
        self.cluster = cluster
        self.name = name
        self.pods = pods
        self._registries = registries or Path("/nowhere")
        self.directory = Path(tempfile.mkdtemp(prefix="remuda-node-"))
        self._group = self.directory.name
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._holder = 0

    def __enter__(self) -> Node:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Return when the node is Ready and the image is there."""
        if self.cluster.address == HOST or (why := problem()):
            raise ClusterError("a node needs a network of its own" if self.cluster.address == HOST else why)
        atexit.register(self.stop)
        try:
            subprocess.run(["nft", "-f", "-"], input=_NETWORK.format(pods=self.pods), text=True, check=True)
            self._hold_namespaces()
            self._start_containerd()
            self.load(self._busybox(), BUSYBOX)
            self._start_kubelet()
            self._start_proxy()
            self._wait("kubelet", self._is_ready, 400)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        atexit.unregister(self.stop)
        if self._holder:
            with_pid, self._holder = self._holder, 0
            with contextlib.suppress(ProcessLookupError):
                os.kill(with_pid, signal.SIGKILL)
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()
        self._processes.clear()
        clean = ["unshare", "--mount", "sh", "-c", _CLEAN, "sh", str(self.directory), " ".join(_CONTROLLERS), self._group]
        subprocess.run(clean, check=False, capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    def load(self, layout: Path, name: str) -> None:
        """An image, an OCI layout that has the tag of this name, so that pods need not pull it."""
        archive = self.directory / "image.tar"
        with tarfile.open(archive, "w") as packed:
            for path in sorted(layout.rglob("*")):
                packed.add(path, path.relative_to(layout), recursive=False)
        self.inside("ctr", "--namespace=k8s.io", "images", "import", "--base-name", name.rpartition(":")[0], str(archive))
        archive.unlink()

    def inside(self, program: str, *arguments: str) -> str:
        """Run one of containerd's programs on the node; what it says."""
        command = [*self._enter(), str(build.programs(program)[program]), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout

    def log(self, program: str) -> str:
        return (self.directory / f"{program}.log").read_text(errors="replace")

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _hold_namespaces(self) -> None:
        outer = ["unshare", "--mount", "sh", "-c", _OUTER, "sh", str(self.directory), " ".join(_CONTROLLERS), self._group, _INNER]
        self._spawn("namespaces", outer, {})
        self._wait("namespaces", (self.directory / "ready").exists, 180)
        # unshare's child is process 1 of the node.
        unshare = self._processes["namespaces"].pid
        children = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
        self._holder = int(children[0])

    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self._holder}", "--mount", "--pid", "--cgroup", "sh", "-c", _JOIN, "sh"]

    def _start_containerd(self) -> None:
        containerd = build.programs("containerd")["containerd"]
        shim = build.programs("containerd-shim-runc-v2")["containerd-shim-runc-v2"]
        network = {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "pods0",
                    "isGateway": True,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": "/run/cni",
                        "ranges": [[{"subnet": self.pods}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }
        (self.directory / "net.d").mkdir()
        (self.directory / "net.d" / "pods.conflist").write_text(json.dumps(network))
        config = self.directory / "containerd.toml"
        config.write_text(f"""
version = 3
root = "{self.directory}/containerd"
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{BUSYBOX}"
[plugins."io.containerd.cri.v1.images".registry]
config_path = "{self._registries}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{_NETWORK_PLUGINS}"]
conf_dir = "{self.directory}/net.d"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{_RUNC}"
SystemdCgroup = false
""")
        path = f"{shim.parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        self._spawn("containerd", [*self._enter(), str(containerd), f"--config={config}"], {"PATH": path})
        self._wait("containerd", self._containerd_answers, 180)

    def _containerd_answers(self) -> bool:
        try:
            self.inside("ctr", "version")
        except subprocess.CalledProcessError:
            return False
        return True

    def _start_kubelet(self) -> None:
        kubeconfig = self.cluster.kubeconfig_for(self.name, f"system:node:{self.name}", ("system:nodes",))
        self._let_nodes_work()
        (port,) = free_ports(1)
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.cluster.address,
            "port": port,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.cluster.ca_pem)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "localStorageCapacityIsolation": False,
            "enforceNodeAllocatable": ["none"],
            "evictionHard": dict.fromkeys(("nodefs.available", "imagefs.available", "nodefs.inodesFree"), "0%"),
            "imageGCHighThresholdPercent": 100,
            "resolvConf": "",
            # Nobody answers there: pods know each other by address.
            "clusterDNS": ["10.96.0.10"],
            "syncFrequency": "10s",
            "podLogsDir": str(self.directory / "logs"),
            "volumePluginDir": str(self.directory / "volumes"),
        }
        path = self.directory / "kubelet.json"
        path.write_text(json.dumps(config))
        kubelet = build.programs("kubelet")["kubelet"]
        flags = [
            f"--config={path}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.cluster.address}",
            f"--root-dir={self.directory}/kubelet",
            f"--cert-dir={self.directory}",
        ]
        self._spawn("kubelet", [*self._enter(), str(kubelet), *flags], {})

    def _let_nodes_work(self) -> None:
        """The node authorizer would do this and more; the test's cluster has RBAC alone."""
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "nodes"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
        }
        status, said = self.cluster.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        if status not in (201, 409):
            raise ClusterError(f"nodes were given no role: {said}")

    def _start_proxy(self) -> None:
        (port,) = free_ports(1)
        kubeconfig = self.cluster.kubeconfig_for("kube-proxy", "system:kube-proxy", ("system:masters",))
        config = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "clusterCIDR": self.pods,
            "hostnameOverride": self.name,
            "healthzBindAddress": "",
            "metricsBindAddress": f"127.0.0.1:{port}",
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            "nftables": {"masqueradeAll": True, "minSyncPeriod": "100ms"},
        }
        path = self.directory / "kube-proxy.json"
        path.write_text(json.dumps(config))
        self._spawn("kube-proxy", [*self._enter(), str(build.programs("kubelet")["kube-proxy"]), f"--config={path}"], {})

    def _is_ready(self) -> bool:
        try:
            status, node = self.cluster.request("GET", f"/api/v1/nodes/{self.name}")
        except OSError:
            return False
        conditions: list[dict[str, Any]] = node.get("status", {}).get("conditions", []) if status == 200 else []
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _busybox(self) -> Path:
        tree = Tree()
        for directory in ("tmp", "var", "etc"):
            tree.directory(directory, 0o777)
        tree.file("bin/busybox", _BUSYBOX_PROGRAM.read_bytes(), 0o755)
        for command in _COMMANDS:
            tree.link(f"bin/{command}", "busybox")
        machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
        settings = {"Cmd": ["/bin/sleep", "1000000000"], "Env": ["PATH=/bin"]}
        layout = Layout(self.directory / "busybox")
        layout.write(Image(machine, [layer_of(tree, "busybox")], settings), ["1"])
        return layout.directory

    def _spawn(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    def _wait(self, name: str, ready: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not ready():
            ended = self._processes[name].poll() is not None
            if ended or time.monotonic() > end:
                lines = "\n".join(self.log(name).splitlines()[-15:])
                raise ClusterError(f"{name} {'ended' if ended else f'was not ready after {seconds:.0f} s'}:\n{lines}")
            time.sleep(0.1)
