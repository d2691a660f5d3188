"""`make bench ARGS=clients`: ordinary clients. Bearer tokens, sixteen connections, every answer decoded.

`api` measures what the servers can do: client certificates, nothing decoded. Programs come otherwise, and half of the machine is
then the client's. Both servers run during the whole measurement and are asked alternately, round after round, so that a slow
moment of the machine is no server's fault; the median of the rounds is shown, with the servers' CPU time for each request.

kube-apiserver is asked with HTTP/2, which Go's clients choose, and with HTTP/1.1; Remuda speaks HTTP/1.1. Its own tokens are
compared with the other's ServiceAccount tokens.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from remuda.access.users.tokens import TokenSpec, make_token
from remuda.kube.clock import Entropy
from tests.bench import machine, objects, table
from tests.bench.loader import Loader, LoadError
from tests.bench.series import Found
from tests.bench.servers import Kubernetes, Remuda, Server, ServerError, request
from tests.bench.table import READS, WRITES, Goal, Row, Side
from tests.real import build
from tests.real.cluster import ClusterError

NAMESPACE, ACCOUNT, USER = "bench", "bench", "u-bench"
CLIENTS = 16


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int
    objects: int
    # Seconds: for creates at most, for reads exactly.
    limit: float
    steady: float


FULL = Sizes(rounds=5, objects=3000, limit=8, steady=4)
QUICK = Sizes(rounds=3, objects=1200, limit=4, steady=2)


@dataclass(frozen=True, slots=True)
class Client:
    """One kind of client of one server; `key` tells its columns and rows."""

    key: str
    server: Server
    token: Path
    http2: bool = False


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench clients", description="Clients with tokens that decode answers.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and objects")
    parser.add_argument("--only", choices=("kubernetes", "remuda"), help="one server")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    parser.add_argument("--dir", type=Path, metavar="DIRECTORY", help="where both servers keep their data (default: temporary)")
    chosen = parser.parse_args(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="remuda-bench-", dir=chosen.dir))
    try:
        began, where = time.monotonic(), machine.described(scratch)
        found, disturbed = _measure(QUICK if chosen.quick else FULL, scratch, chosen.only)
    except (build.BuildError, ClusterError, LoadError, ServerError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    ours, *theirs = (Side(name, short, found.get(key, {})) for name, short, key in _COLUMNS)
    print(f"\n{where}\n\n{table.table(rows(), ours, theirs)}\n")
    print(f"other programs kept {disturbed:.2f} cores busy while it was measured\ntook {time.monotonic() - began:.0f} s")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"machine": where, "disturbed": disturbed, **found}, indent=2) + "\n")
    return 0


_COLUMNS = (
    ("Remuda", "Remuda", "remuda"),
    ("Kubernetes, HTTP/2", "HTTP/2", "kubernetes-2"),
    ("Kubernetes, HTTP/1.1", "HTTP/1.1", "kubernetes-1"),
)
_MODES: tuple[tuple[str, str, Goal], ...] = (
    ("create", "creates/s, 4 KB", WRITES),
    ("custom", "creates/s of custom resources, 2 KB", WRITES),
    ("get", "GETs/s, 4 KB", READS),
)


def rows() -> list[Row]:
    rates = [
        Row(f"{mode}_{kind}", f"{what}, {credential}", 0, Goal(goal.bound, goal.at_least, against="HTTP/2"))
        for kind, credential in (("account", "ServiceAccount token"), ("own", "Remuda's token"))
        for mode, what, goal in _MODES
    ]
    costs = [
        Row(f"cpu_{mode}_{kind}", f"CPU for each {what}, {credential}, µs", 0)
        for kind, credential in (("account", "ServiceAccount token"), ("own", "Remuda's token"))
        for mode, what in (("create", "create"), ("custom", "create of a custom resource"), ("get", "GET"))
    ]
    return rates + costs


def _measure(sizes: Sizes, scratch: Path, only: str | None) -> tuple[dict[str, Found], float]:
    def one(name: str, measure: Callable[[list[Client]], tuple[dict[str, Found], float]]) -> tuple[dict[str, Found], float]:
        if name == "remuda":
            with Remuda(scratch / name, controllers="*") as ours:
                return measure(_clients_of_ours(ours, scratch))
        with Kubernetes(scratch / name) as theirs:
            return measure(_clients_of_theirs(theirs, scratch))

    def rounds(clients: list[Client]) -> tuple[dict[str, Found], float]:
        return _rounds(clients, sizes, scratch)

    if only:
        return one(only, rounds)
    return one("kubernetes", lambda theirs: one("remuda", lambda ours: rounds([*ours, *theirs])))


def _rounds(clients: list[Client], sizes: Sizes, scratch: Path) -> tuple[dict[str, Found], float]:
    seen: dict[str, dict[str, list[float]]] = {}
    loaders = {client.key: Loader(client.server, scratch, client.http2, client.token) for client in clients}
    for turn in range(sizes.rounds):
        # Backwards every other time: the first of a round is not always the same.
        for client in clients if turn % 2 == 0 else clients[::-1]:
            print(f"round {turn + 1} of {sizes.rounds}: {client.key}", file=sys.stderr, flush=True)
            taken = _one_round(loaders[client.key], sizes, f"{client.key}-{turn}-")
            for key, value in taken.items():
                seen.setdefault(client.key, {}).setdefault(key, []).append(value)
    medians = {client: {key: statistics.median(values) for key, values in found.items()} for client, found in seen.items()}
    disturbed = sum(each.disturbed for each in loaders.values()) / sum(each.measured for each in loaders.values())
    return _by_column(medians), disturbed


def _one_round(loader: Loader, sizes: Sizes, prefix: str) -> Found:
    path = objects.configmap_path(NAMESPACE)
    names: dict[str, int | float | str | bool] = {"prefix": prefix, "clients": CLIENTS, "decode": True}
    created = loader.run("create", path, seconds=sizes.limit, body=objects.configmap(), count=sizes.objects, **names)
    custom = loader.run("create", objects.CUSTOM_PATH, seconds=sizes.limit, body=objects.custom(), count=sizes.objects, **names)
    read = loader.run("get", path, seconds=sizes.steady, count=created.done, **names)
    found: Found = {}
    for mode, run in (("create", created), ("custom", custom), ("get", read)):
        if run.problem:
            raise LoadError(f"{prefix}{mode}: {run.problem}")
        found |= {mode: run.rate, f"cpu_{mode}": run.cpu_us}
    return found


def _by_column(medians: dict[str, Found]) -> dict[str, Found]:
    """By server and protocol; the credentials are in the rows."""
    columns: dict[str, Found] = {}
    for key, found in medians.items():
        column, _, kind = key.partition(".")
        for each in (kind,) if kind else ("account", "own"):
            columns.setdefault(column, {}).update({f"{name}_{each}": value for name, value in found.items()})
    return columns


def _clients_of_ours(server: Remuda, scratch: Path) -> list[Client]:
    account = _prepare(server, scratch)
    made = make_token(TokenSpec(USER, 3600), time.time(), Entropy())
    management = "/apis/management.cattle.io/v3"
    _until(server, f"{management}/tokens?limit=1")
    user = {"apiVersion": "management.cattle.io/v3", "kind": "User", "metadata": {"name": USER}, "username": "bench"}
    _must(server, "POST", f"{management}/users", user)
    _must(server, "POST", f"{management}/tokens", made.manifest)
    own = _kept(scratch / "own-token", made.presented.text)
    return [Client("remuda.account", server, account), Client("remuda.own", server, own)]


def _clients_of_theirs(server: Server, scratch: Path) -> list[Client]:
    account = _prepare(server, scratch)
    return [Client("kubernetes-2", server, account, http2=True), Client("kubernetes-1", server, account)]


def _prepare(server: Server, scratch: Path) -> Path:
    """A namespace, a kind, and a ServiceAccount that may do everything: the file with its token."""
    _must(server, "POST", "/api/v1/namespaces", objects.namespace(NAMESPACE))
    _must(server, "POST", objects.CRD_PATH, objects.crd())
    _until(server, f"{objects.CUSTOM_PATH}?limit=1")
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    _must(server, "POST", accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}})
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "bench"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [
            {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE},
            {"kind": "User", "apiGroup": group, "name": USER},
        ],
    }
    _must(server, "POST", f"/apis/{group}/v1/clusterrolebindings", binding)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = _must(server, "POST", f"{accounts}/{ACCOUNT}/token", asked)["status"]["token"]
    return _kept(scratch / f"{server.name}-account-token", token)


def _kept(path: Path, token: str) -> Path:
    path.write_text(token)
    path.chmod(0o600)
    return path


def _must(server: Server, method: str, path: str, body: objects.Obj) -> objects.Obj:
    status, answer = request(server, method, path, body)
    if status not in (200, 201):
        raise ServerError(f"{server.name}: {method} {path}: {status} {answer}")
    found: objects.Obj = answer
    return found


def _until(server: Server, path: str) -> None:
    deadline = time.monotonic() + 30
    while request(server, "GET", path)[0] != 200:
        if time.monotonic() > deadline:
            raise ServerError(f"{server.name} does not serve {path}")
        time.sleep(0.05)
