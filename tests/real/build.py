"""Build the real programs that the tests compare Remuda with, or run it on: Kubernetes, etcd, Cluster API's managers, and so on.

Run as `python tests/real/build.py [NAME|all]`, with a name of `TARGETS`; it builds what is missing
and prints one `name=path` line per program. Tests call `programs()` instead. What is built depends only on the pinned sources
(go.mod, go.sum, our main.go and the link flags), so the result is kept in a cache directory named by their hash:
`$REMUDA_CACHE` or `$XDG_CACHE_HOME` or `~/.cache`, then `remuda/real/<hash>/`. A file lock lets several test runs
ask at once; one builds, the others wait. `cluster.py` starts what was built here.

Standard library only: it must run before any dependency is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

EXIT_BUILD_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_GO = 3


class BuildError(Exception):
    """A program could not be built; the message says which and why."""

    def __init__(self, message: str, code: int = EXIT_BUILD_FAILED) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Target:
    """One Go module, usually under tests/real, and the programs that come out of it."""

    name: str
    package: str
    binary: str
    links: tuple[str, ...] = ()
    # (key in peers.env, module that must be required at that version); None for a program of our own
    pin: tuple[str, str] | None = None
    folder: Path | None = None

    @property
    def source(self) -> Path:
        return self.folder or HERE / self.name


_CONTAINERD = ("CONTAINERD_VERSION", "github.com/containerd/containerd/v2")
_RANCHER_MACHINE = ("RANCHER_MACHINE_VERSION", "github.com/rancher/machine")
_CLUSTER_API = ("CLUSTER_API_VERSION", "sigs.k8s.io/cluster-api")

TARGETS = {
    target.name: target
    for target in (
        Target(
            name="kubernetes",
            package=".",
            binary="kubernetes",
            links=("kube-apiserver", "kube-controller-manager", "kubectl"),
            pin=("KUBERNETES_VERSION", "k8s.io/kubernetes"),
        ),
        Target(
            name="etcd",
            package=".",
            binary="etcd-programs",
            links=("etcd", "etcdutl"),
            pin=("ETCD_VERSION", "go.etcd.io/etcd/server/v3"),
        ),
        Target(
            name="capi",
            package="sigs.k8s.io/cluster-api/core",
            binary="capi-manager",
            links=(),
            pin=_CLUSTER_API,
        ),
        Target(
            name="capi-bootstrap",
            package="sigs.k8s.io/cluster-api/bootstrap/kubeadm",
            binary="kubeadm-bootstrap-manager",
            pin=_CLUSTER_API,
            folder=HERE / "capi",
        ),
        Target(
            name="capi-controlplane",
            package="sigs.k8s.io/cluster-api/controlplane/kubeadm",
            binary="kubeadm-control-plane-manager",
            pin=_CLUSTER_API,
        ),
        Target(
            name="clusterctl",
            package="sigs.k8s.io/cluster-api/cmd/clusterctl",
            binary="clusterctl",
            pin=_CLUSTER_API,
            folder=HERE / "capi",
        ),
        Target("helm", "helm.sh/helm/v3/cmd/helm", "helm", pin=("HELM_VERSION", "helm.sh/helm/v3")),
        Target(
            name="versitygw",
            package="github.com/versity/versitygw/cmd/versitygw",
            binary="versitygw",
            pin=("VERSITYGW_VERSION", "github.com/versity/versitygw"),
        ),
        Target("remotedialer", ".", "remotedialer", pin=("REMOTEDIALER_VERSION", "github.com/rancher/remotedialer")),
        Target(
            name="systemagent",
            package="github.com/rancher/system-agent",
            binary="rancher-system-agent",
            pin=("SYSTEM_AGENT_VERSION", "github.com/rancher/system-agent"),
        ),
        Target(
            name="rancher-machine",
            package="github.com/rancher/machine/cmd/rancher-machine",
            binary="rancher-machine",
            pin=_RANCHER_MACHINE,
        ),
        Target("rancher-machine-flags", ".", "rancher-machine-flags", pin=_RANCHER_MACHINE, folder=HERE / "rancher-machine"),
        Target(
            name="kubelet",
            package=".",
            binary="node",
            links=("kubelet", "kube-proxy", "kube-scheduler"),
            pin=("KUBERNETES_VERSION", "k8s.io/kubernetes"),
        ),
        *(
            Target(
                name=name,
                package=f"{_CONTAINERD[1]}/cmd/{name}",
                binary=name,
                pin=_CONTAINERD,
                folder=HERE / "containerd",
            )
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        ),
    )
}


def peers() -> dict[str, str]:
    """The pinned versions of `peers.env`."""
    lines = (line.strip() for line in (HERE / "peers.env").read_text().splitlines())
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def cache_root() -> Path:
    """Where built programs live; never inside the source tree."""
    base = os.environ.get("REMUDA_CACHE") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "remuda" / "real"


def link_flags(target: Target) -> str:
    """Strip symbols; for Kubernetes also say the version, which a build from the module proxy does not know."""
    flags = ["-s", "-w"]
    if target.name in ("kubernetes", "kubelet"):
        version = peers()["KUBERNETES_VERSION"]
        major, minor, _ = version.lstrip("v").split(".", 2)
        values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += [f"-X {package}.{key}={value}" for key, value in values.items()]
    if target.name == "rancher-machine":
        flags.append(f"-X github.com/rancher/machine/version.Version={peers()['RANCHER_MACHINE_VERSION']}")
    return " ".join(flags)


def source_hash(target: Target) -> str:
    """Name of the cache entry: equal sources give equal programs."""
    digest = hashlib.sha256()
    for path in sorted([*target.source.glob("*.go"), *target.source.glob("go.*")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(f"{target.package}\0{link_flags(target)}".encode())
    return digest.hexdigest()[:16]


def programs(wanted: str | Target, *, build_missing: bool = True) -> dict[str, Path]:
    """Paths of the programs of one target (or the name of one in `TARGETS`), built first when missing."""
    target = TARGETS[wanted] if isinstance(wanted, str) else wanted
    home = cache_root() / source_hash(target)
    found = {program: home / program for program in (target.links or (target.binary,))}
    if build_missing and not all(path.exists() for path in found.values()):
        _build(target, home)
    return found


def _check_pin(target: Target) -> None:
    if target.pin is None:
        return
    key, module = target.pin
    wanted = peers()[key]
    required = f"{module} {wanted}"
    lines = (line.strip().removeprefix("require ") for line in (target.source / "go.mod").read_text().splitlines())
    if not any(line == required or line.startswith(required + " ") for line in lines):
        raise BuildError(f"tests/real/{target.source.name}/go.mod does not require {required}, but peers.env pins {wanted}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(target: Target, home: Path) -> None:
    _check_pin(target)
    go = shutil.which("go")
    if go is None:
        raise BuildError(f"{target.name} is built with Go, and no `go` is on PATH: install Go 1.26 or later", EXIT_NO_GO)
    with _locked(cache_root() / f"{target.name}.lock"):
        if (home / target.binary).exists():
            return
        what = "" if target.pin is None else f" ({target.pin[1]} {peers()[target.pin[0]]}); cold this takes minutes"
        _say(f"building {target.name}{what}")
        started = time.monotonic()
        home.parent.mkdir(parents=True, exist_ok=True)
        # Built aside and moved in whole: a killed build leaves nothing that looks finished.
        with tempfile.TemporaryDirectory(prefix=f"{target.name}-", dir=home.parent) as scratch:
            out = Path(scratch) / "out"
            out.mkdir()
            _go_build(go, target, out / target.binary)
            for link in target.links:
                (out / link).symlink_to(target.binary)
            if home.exists():
                shutil.rmtree(home)
            out.rename(home)
        _say(f"built {target.name} in {time.monotonic() - started:.0f} s")


def _go_build(go: str, target: Target, output: Path) -> None:
    command = [go, "build", "-trimpath", "-mod=readonly", "-ldflags", link_flags(target), "-o", str(output)]
    # No workspace of the caller, no C compiler: the same program on every machine.
    environment = {**os.environ, "GOWORK": "off", "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    done = subprocess.run([*command, target.package], cwd=target.source, env=environment, check=False)
    if done.returncode != 0:
        raise BuildError(f"go build of {target.name} failed with exit code {done.returncode}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    wanted = arguments or ["all"]
    unknown = [name for name in wanted if name != "all" and name not in TARGETS]
    if unknown:
        _say(f"unknown target {unknown[0]}: say one of {', '.join(TARGETS)} or all")
        return EXIT_USAGE
    try:
        for name in TARGETS if "all" in wanted else wanted:
            for program, path in programs(name).items():
                print(f"{program}={path}", flush=True)
    except BuildError as error:
        _say(str(error))
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
