"""Rancher's system agent and ours, each on a host that is a directory, with plans that they get in the same way.

    with serving(directory / "server") as api:
        plan = api.plan("one", directory / "one")
        with Agent.remote(OURS, plan, api) as agent: ...

A host's plans say `{root}` where its directory belongs; what is compared has `{root}` again.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from remuda.agent.install import ARCHIVE, build
from remuda.gateway.registration.node_registration import kubeconfig
from remuda.provisioning.bootstrap.machine_objects import plan_objects
from remuda.provisioning.plans.machine_plan_secret import with_plan
from remuda.provisioning.plans.plan import Plan, checksum, encode
from remuda.provisioning.well_known import plan_name
from tests.api.harness import Endpoint
from tests.e2e.serving import Served, eventually
from tests.real import need, oldpython

Obj = dict[str, Any]
# Method, path, body, headers: status and body.
Ask = Callable[..., tuple[int, Any]]

OURS, ORIGINAL = "remuda-agent", "rancher-system-agent"
KINDS = (OURS, ORIGINAL)
NAMESPACE = "fleet-default"
TIME = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]\d \d\d:\d\d:\d\d [A-Z]+ \d{4}")
_PACKED = ("applied-output", "failed-output", "applied-periodic-output")
_PLURALS = {"Secret": "secrets", "ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings"}


# --- plans --------------------------------------------------------------------------------------------------------------


class PlanSecret:
    """The Secret of one host's plan, as its server sees it."""

    def __init__(self, ask: Ask, name: str, token: str, root: Path) -> None:
        self.ask = ask
        self.name = name
        self.token = token
        self.root = root
        self.path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"

    def get(self) -> Obj:
        status, found = self.ask("GET", self.path)
        assert status == 200, found
        return dict(found)

    def give(self, plan: Plan | bytes, *, legacy: bool = False, **data: str) -> None:
        """A plan, and more keys of the Secret; `legacy` as servers wrote it that did not know of states."""
        text = (plan if isinstance(plan, bytes) else encode(plan)).replace(b"{root}", str(self.root).encode())

        def write() -> bool:
            secret = with_plan(self.get(), text, now=time.time())
            if legacy:
                del secret["data"]["plan-state"]
            more = {key.replace("_", "-"): base64.b64encode(value.encode()).decode() for key, value in data.items()}
            secret["data"] |= more
            return self.ask("PUT", self.path, secret)[0] == 200

        eventually(write, 60, why="the plan can't be written")

    def put(self, **data: str) -> None:
        """Some keys only."""
        more = {key.replace("_", "-"): base64.b64encode(value.encode()).decode() for key, value in data.items()}
        status, answer = self.ask("PATCH", self.path, {"data": more}, {"Content-Type": "application/merge-patch+json"})
        assert status == 200, answer

    def text(self, key: str) -> str:
        return base64.b64decode(self.get().get("data", {}).get(key, "")).decode(errors="replace")

    def said(self) -> Obj:
        """All of its data as it means, with times, checksums and the host's directory told by name."""
        secret = self.get()
        raw = {key: base64.b64decode(value) for key, value in secret["data"].items()}
        names = {checksum(raw.get("plan", b"")): "{checksum}", str(self.root): "{root}"}
        told: Obj = {}
        # Ours alone says why a plan failed, and which agent it is.
        for key, value in raw.items():
            if key in ("failure-reason", "agent"):
                continue
            shown: Any = unpacked(value) if key in _PACKED else value.decode()
            told[key] = json.loads(shown) if key == "probe-statuses" else shown
        meta = secret["metadata"]
        told["metadata"] = {key: meta.get(key) for key in ("labels", "annotations", "finalizers", "ownerReferences")}
        told["metadata"]["annotations"] = dict.fromkeys(meta.get("annotations") or {})
        told["metadata"]["labels"] = sorted(meta.get("labels") or {})
        return dict(named(told, names))


def unpacked(value: bytes) -> Any:
    """What is in an output; base64 inside of it undone."""
    if not value:
        return ""
    # The same bytes for the same content, or a Secret is written again and again.
    assert value[4:8] == b"\0\0\0\0", "a time of packing is in it"
    found = json.loads(gzip.decompress(value))
    return {name: _shown(each) for name, each in found.items()} if isinstance(found, dict) else found


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return base64.b64decode(value).decode()
    if isinstance(value, dict):
        return {
            key: base64.b64decode(text or "").decode() if key in ("stdout", "stderr") else text for key, text in value.items()
        }
    return value


def named(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: named(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [named(each, names) for each in value]
    if isinstance(value, str):
        for text, name in names.items():
            value = value.replace(text, name)
        return TIME.sub("{time}", value)
    return value


class Api:
    """An API with Secrets that agents follow: how an administrator asks it, and where agents are told that it is."""

    def __init__(self, ask: Ask, url: str, ca: str) -> None:
        self.ask = ask
        self.url = url
        self.ca = ca

    def plan(self, host: str, root: Path) -> PlanSecret:
        """With the account that may read and write it, as the controller of bootstraps makes them."""
        meta = {"name": host, "namespace": NAMESPACE, "uid": host}
        bootstrap = {"apiVersion": "rke.cattle.io/v1", "kind": "RKEBootstrap", "metadata": meta, "spec": {"clusterName": "demo"}}
        for made in plan_objects(bootstrap, {**bootstrap, "kind": "Machine"}):
            obj = made.obj
            # There is no bootstrap here that could own them.
            del obj["metadata"]["ownerReferences"]
            group = "/api/v1" if obj["apiVersion"] == "v1" else f"/apis/{obj['apiVersion']}"
            status, answer = self.ask("POST", f"{group}/namespaces/{NAMESPACE}/{_PLURALS[obj['kind']]}", obj)
            assert status == 201, answer
        return PlanSecret(self.ask, plan_name(host), self._token(plan_name(host)), root)

    def _token(self, account: str) -> str:
        name = f"{account}-token"
        meta = {"name": name, "annotations": {"kubernetes.io/service-account.name": account}}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "kubernetes.io/service-account-token"}
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        assert self.ask("POST", path, secret)[0] == 201
        found: list[str] = []

        def filled() -> bool:
            data = self.ask("GET", f"{path}/{name}")[1].get("data") or {}
            found.append(base64.b64decode(data.get("token") or "").decode())
            return bool(found[-1])

        eventually(filled, 60, why="the account has got no token")
        return found[-1]


def namespace(api: Api) -> None:
    status, answer = api.ask(
        "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    )
    assert status in (201, 409), answer


def asking(endpoint: Endpoint) -> Ask:
    def ask(method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        said = {"Content-Type": "application/json", **(headers or {})} if data is not None else dict(headers or {})
        answer = endpoint.request(method, path, data, said)
        return answer.status, answer.json

    return ask


@contextmanager
def serving(directory: Path) -> Iterator[Api]:
    """Remuda's own API, in a process of its own."""
    served = Served(directory)
    served.start()
    try:
        api = Api(asking(served.endpoint), f"https://127.0.0.1:{served.port}", (directory / "pki" / "ca.crt").read_text())
        namespace(api)
        yield api
        assert served.tracebacks() == [], served.told()[-4000:]
    finally:
        served.end()


# --- hosts --------------------------------------------------------------------------------------------------------------


class Agent:
    """A host with one of the two agents. Ends are restarts, as systemd sees it, up to a bound."""

    def __init__(self, kind: str, root: Path, settings: Obj) -> None:
        self.kind = kind
        self.root = root
        self.log = root.with_name(f"{root.name}.log")
        root.mkdir(parents=True, exist_ok=True)
        self.config = root / "config.yaml"
        known = {
            "workDirectory": f"{root}/agent/work",
            "localPlanDirectory": f"{root}/agent/plans",
            "appliedPlanDirectory": f"{root}/agent/applied",
            "interlockDirectory": f"{root}/agent/interlock",
            "imagesDirectory": f"{root}/agent/images",
            "agentRegistriesFile": f"{root}/agent/registries.yaml",
            **settings,
        }
        for name in ("work", "plans", "applied", "interlock", "images"):
            (root / "agent" / name).mkdir(parents=True, exist_ok=True)
        _private(self.config, json.dumps(known))
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    def remote(cls, kind: str, plan: PlanSecret, api: Api) -> Self:
        root = plan.root
        root.mkdir(parents=True, exist_ok=True)
        config = kubeconfig(api.url, api.ca, plan.token)
        connection = {"kubeConfig": config, "namespace": NAMESPACE, "secretName": plan.name}
        _private(root / "connection.json", json.dumps(connection))
        return cls(kind, root, {"remoteEnabled": True, "connectionInfoFile": str(root / "connection.json")})

    @classmethod
    def local(cls, kind: str, root: Path) -> Self:
        return cls(kind, root, {"localEnabled": True})

    def command(self) -> list[str]:
        if self.kind == ORIGINAL:
            return [str(need.programs("systemagent")["rancher-system-agent"])]
        archive = self.root.with_name(ARCHIVE)
        if not archive.exists():
            archive.write_bytes(build())
        # With the oldest Python that it must run with; everything else runs it with this one.
        python = [sys.executable] if oldpython.why_not() else oldpython.words(self.root.parent)
        return [*python, str(archive)]

    def start(self) -> None:
        environ = {"CATTLE_AGENT_CONFIG": str(self.config), "CATTLE_AGENT_STRICT_VERIFY": "true", "CATTLE_LOGLEVEL": "debug"}
        command = [*self.command(), "sentinel"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environ})

    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def until(self, true: Any, seconds: float = 180) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"{self.kind} did not come so far:\n{self.told()[-4000:]}"
            if self.ended():
                self.start()
            time.sleep(0.05)

    def told(self) -> str:
        return self.log.read_text(errors="replace")

    def tree(self, below: str) -> dict[str, tuple[str, int, int, str]]:
        """Every file and directory below a place on the host: what kind, mode, owner and content."""
        found = {}
        for path in sorted((self.root / below).rglob("*")):
            about = path.lstat()
            content = path.read_text().replace(str(self.root), "{root}") if path.is_file() else ""
            kind = "directory" if path.is_dir() else "file"
            found[str(path.relative_to(self.root))] = (kind, about.st_mode & 0o7777, about.st_uid, content)
        return found


def _private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
    path.chmod(0o600)


def both_possible() -> None:
    """The original runs as root and nobody else."""
    need.programs("systemagent")
    if os.geteuid() != 0:
        need.absent("Rancher's agent must run as root")
