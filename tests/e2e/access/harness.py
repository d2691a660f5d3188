"""A gateway, clusters behind it, and their agents, each in processes of its own; people who use them, and what they may do.

    with Gateway(directory) as gateway, Embedded(directory) as downstream:
        admin = gateway.administrator()
        imported = gateway.imported(downstream)
        admin.request("GET", imported.path("/api/v1/namespaces"))

Where a part runs is given by `prefix`: `ip netns exec …` puts it into a network of its own (:mod:`.namespaces`).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import yaml

from remuda.access.users.tokens import TokenSpec, make_token
from remuda.kube.clock import Entropy
from tests.api.harness import Answer, Endpoint
from tests.e2e.serving import Served, eventually
from tests.real import need

Obj = dict[str, Any]

REPOSITORY = Path(__file__).resolve().parents[3]
READY = b"Ctrl-C stops."
# More than what is on its way at any moment.
LARGE = 8 << 20
PASSWORD = "correct horse battery staple"
CLUSTERS = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters"
MANAGEMENT = "/apis/management.cattle.io/v3"
MANAGED = f"{MANAGEMENT}/clusters"


class Program:
    """A process with a log, ended whatever happens."""

    def __init__(self, name: str, directory: Path, prefix: Sequence[str] = (), environ: dict[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.directory = directory
        self.prefix = list(prefix)
        self.environ = environ or {}
        self.log = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise AssertionError("said by each kind")

    def start(self) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self.environ}
        with self.log.open("ab") as log:
            command = [*self.prefix, *self.command()]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def told(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> int:
        """Ask it to stop; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def kill(self) -> None:
        if self.alive:
            assert self.process is not None
            # With all that a prefix such as faketime, which does not become what it starts, has below it.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()


class Person:
    """Somebody with a token, or with nothing at all, at the gateway's door."""

    def __init__(self, gateway: Gateway, token: str = "", name: str = "") -> None:
        self.gateway = gateway
        self.token = token
        self.name = name

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request on a connection of its own; headers with `_` for `-`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        connection = self.connect()
        try:
            return Endpoint._exchange(connection, method, path, data, {"Accept": "application/json", **sent})
        except (BrokenPipeError, ConnectionResetError):
            if data is None or len(data) < LARGE:
                raise
            # Whoever is hung up on before all is sent was told why.
            return Answer.read(connection.getresponse())
        finally:
            connection.close()

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.gateway.host, self.gateway.port, context=self.gateway.trusting(), timeout=120)

    @contextmanager
    def stream(self, path: str) -> Iterator[http.client.HTTPResponse]:
        """An answer that does not end by itself."""
        connection = self.connect()
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}", "Accept": "application/json"})
        response = connection.getresponse()
        try:
            yield response
        finally:
            if connection.sock is not None:
                connection.sock.close()
            response.close()
            connection.close()

    def kubeconfig(self, directory: Path, cluster: str = "") -> Path:
        """For real clients; `cluster` is the one behind the gateway, or else the gateway's own API."""
        server = self.gateway.url + (f"/k8s/clusters/{cluster}" if cluster else "")
        ca = base64.b64encode(self.gateway.ca.read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": {"server": server, "certificate-authority-data": ca}}],
            "users": [{"name": "me", "user": {"token": self.token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
            "current-context": "it",
        }
        path = directory / f"kubeconfig-{self.name or 'nobody'}-{cluster or 'local'}"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path


class Gateway(Served):
    """`remuda serve` with everything, also people and clusters. `host` is where it listens and how it is known."""

    def __init__(self, directory: Path, *options: str, host: str = "127.0.0.1", environ: dict[str, str] | None = None) -> None:
        super().__init__(directory, environ={"REMUDA_BOOTSTRAP_PASSWORD": PASSWORD, **(environ or {})})
        self.options = options
        self.host = host
        self.ca = directory / "pki" / "ca.crt"
        self.url = f"https://{host}:{self.port}"
        self._administrator: Person | None = None
        self.is_announced = False
        self._told_before = 0

    def start(self) -> None:
        self._told_before = self.log.stat().st_size if self.log.exists() else 0
        super().start()

    def ready(self) -> bool:
        """Not only does it answer, it also says that all is there that a new server makes by itself."""
        return READY in self.log.read_bytes()[self._told_before :] and super().ready()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def command(self) -> list[str]:
        options = ["--data-dir", str(self.directory), "--listen", f"{self.host}:{self.port}", "--controllers=-capi"]
        return [sys.executable, "-m", "remuda", "serve", *options, *self.options]

    @property
    def endpoint(self) -> Endpoint:
        """As the administrator of the store, with a certificate: the way around every token."""
        pki = self.directory / "pki"
        return Endpoint(self.url, self.ca, pki / "admin.crt", pki / "admin.key")

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    def nobody(self) -> Person:
        return Person(self)

    def login(self, name: str, password: str) -> Person:
        body = {"username": name, "password": password, "responseType": "json"}
        answer = self.nobody().request("POST", "/v3-public/localProviders/local?action=login", body)
        assert answer.status == 201, (answer.status, answer.body)
        return Person(self, answer.json["token"], name)

    def administrator(self) -> Person:
        """Somebody who may do everything."""
        if self._administrator is None:
            self._administrator = self.user("administrator", "admin")
        return self._administrator

    def first_user(self) -> Person:
        """The one whom the bootstrap password made, with that password changed as must be."""
        changed = f"{PASSWORD} indeed"
        first = self.once("admin", PASSWORD)
        body = {"currentPassword": PASSWORD, "newPassword": changed}
        answer = first.request("POST", "/v3/users?action=changepassword", body)
        assert answer.status == 200, (answer.status, answer.body)
        return self.login("admin", changed)

    def user(self, name: str, role: str = "user", *, password: str = "") -> Person:
        """A new user with a global role (`user`, `admin`, `user-base`), and a token.

        With a password it is one that logged in. Looking at a password costs half a second, so others are handed a token.
        """
        identity = self._with_password(name, password) if password else self._without_password(name)
        binding = self.made(
            f"{MANAGEMENT}/globalrolebindings",
            {
                "kind": "GlobalRoleBinding",
                "metadata": {"generateName": "grb-"},
                "globalRoleName": role,
                "userName": identity,
            },
        )
        path = f"{MANAGEMENT}/globalrolebindings/{binding['metadata']['name']}"
        endpoint = self.endpoint
        eventually(lambda: endpoint.request("GET", path).json.get("status", {}).get("summary") == "Complete")
        if password:
            return self.once(name, password)
        token = make_token(TokenSpec(identity, 3600), time.time(), Entropy())
        self.made(f"{MANAGEMENT}/tokens", token.manifest)
        person = Person(self, token.presented.text, name)
        eventually(lambda: person.request("GET", "/v3/users?me=true").status == 200, why=f"{name}'s token is not known")
        return person

    def _with_password(self, name: str, password: str) -> str:
        body = json.dumps({"username": name, "password": password}).encode()
        answer = self.endpoint.request("POST", "/v3/users", body, {"Content-Type": "application/json"})
        assert answer.status == 201, (answer.status, answer.body)
        return str(answer.json["id"])

    def _without_password(self, name: str) -> str:
        self.there(f"{MANAGEMENT}/globalroles/user")
        made = self.made(f"{MANAGEMENT}/users", {"kind": "User", "metadata": {"generateName": "u-"}, "username": name})
        return str(made["metadata"]["name"])

    def once(self, name: str, password: str) -> Person:
        """Logged in, once the user is known."""
        found: list[Person] = []

        def logs_in() -> bool:
            with contextlib.suppress(AssertionError):
                found.append(self.login(name, password))
            return bool(found)

        eventually(logs_in, 120, f"{name} can't log in")
        return found[0]

    def bind(self, cluster: str, person: Person, template: str = "cluster-owner") -> None:
        user = self.user_id(person)
        self.made(
            f"/apis/management.cattle.io/v3/namespaces/{cluster}/clusterroletemplatebindings",
            {
                "kind": "ClusterRoleTemplateBinding",
                "metadata": {"generateName": "crtb-"},
                "clusterName": cluster,
                "roleTemplateName": template,
                "userName": user,
            },
        )

    def user_id(self, person: Person) -> str:
        users = self.endpoint.request("GET", "/apis/management.cattle.io/v3/users").json["items"]
        return str(next(user["metadata"]["name"] for user in users if user.get("username") == person.name))

    def posted(self, path: str, obj: Obj) -> Answer:
        """Once more whenever that is what the answer asks for: who has just started does not know yet what to allow, and who
        looks into caches may not have heard of what was made a moment ago."""
        answers: list[Answer] = []

        def settled() -> bool:
            answers.append(self.endpoint.request("POST", path, json.dumps(obj).encode(), {"Content-Type": "application/json"}))
            if b"failed calling webhook" in answers[-1].raw:
                # A real API server waits for our rules for some seconds, and takes nothing without them.
                return False
            details = answers[-1].json.get("details") or {}
            unheard_of = any(each.get("reason") == "FieldValueNotFound" for each in details.get("causes") or ())
            return not (answers[-1].status == 503 and details.get("retryAfterSeconds")) and not unheard_of

        eventually(settled, 240, "it was not taken")
        return answers[-1]

    def made(self, path: str, obj: Obj) -> Obj:
        version = path.removeprefix("/apis/").split("/")
        obj = {"apiVersion": f"{version[0]}/{version[1]}" if path.startswith("/apis/") else "v1", **obj}
        answer = self.posted(path, obj)
        assert answer.status == 201, (answer.status, answer.body)
        return dict(answer.json)

    def setting(self, name: str, value: str) -> None:
        path = f"{MANAGEMENT}/settings/{name}"
        self.there(path)
        body = json.dumps({"value": value}).encode()
        answer = self.endpoint.request("PATCH", path, body, {"Content-Type": "application/merge-patch+json"})
        assert answer.status == 200, (answer.status, answer.body)

    def announced(self) -> None:
        """Its own URL as the setting."""
        self.setting("server-url", self.url)
        self.is_announced = True

    def there(self, path: str) -> None:
        """What a server makes by itself, the kinds of which it may not even serve yet."""
        eventually(lambda: self.endpoint.request("GET", path).status == 200, 120, f"{path} is not there")

    def audit(self) -> list[Obj]:
        found: list[Obj] = []
        for path in sorted((self.directory / "audit").glob("audit*.log*")):
            # What has no end yet is being written.
            found += [json.loads(line) for line in path.read_text().split("\n")[:-1] if line]
        return found

    def ca_checksum(self) -> str:
        text = self.nobody().request("GET", "/v3/settings/cacerts").json["value"]
        return hashlib.sha256(f"{text}\n".encode()).hexdigest()

    # --- clusters -------------------------------------------------------------------------------------------------------

    def cluster(self, name: str) -> Cluster:
        """A cluster to import, with its tokens, to which nothing has connected yet."""
        self.there("/api/v1/namespaces/fleet-default")
        self.there(CLUSTERS)
        self.made(CLUSTERS, {"kind": "Cluster", "metadata": {"name": name, "namespace": "fleet-default"}, "spec": {}})

        def identity() -> str:
            return str(self.endpoint.request("GET", f"{CLUSTERS}/{name}").json.get("status", {}).get("clusterName", ""))

        eventually(lambda: bool(identity()), why="the cluster has got no name")
        cluster = Cluster(self, name, identity())
        eventually(cluster.is_known, why="the gateway does not know the cluster's registration tokens")
        return cluster

    def imported(self, downstream: Downstream, name: str = "", **agent: Any) -> Imported:
        """A cluster with its agent connected, from which the caller must take the agent down."""
        cluster = self.cluster(name or downstream.name)
        running = Agent(cluster, downstream, **agent)
        running.start()
        imported = Imported(cluster, running)
        try:
            cluster.until("Connected", "True")
            # That is only its agent. Its API is reached by a tunnel of its own, which may be younger.
            cluster.until("Ready", "True")
        except BaseException:
            running.kill()
            raise
        return imported


@dataclass(frozen=True)
class Cluster:
    """One that the gateway knows: `name` in fleet-default, `id` as the management Cluster."""

    gateway: Gateway
    name: str
    id: str

    def path(self, rest: str) -> str:
        return f"/k8s/clusters/{self.id}{rest}"

    def managed(self) -> Obj:
        return dict(self.gateway.endpoint.request("GET", f"{MANAGED}/{self.id}").json)

    def status(self) -> Obj:
        """What is known of it so far, which may be nothing."""
        return dict(self.managed().get("status") or {})

    def condition(self, kind: str) -> Obj:
        found = self.status().get("conditions", [])
        return next((dict(each) for each in found if each["type"] == kind), {})

    def until(self, kind: str, status: str, seconds: float = 120) -> Obj:
        end = time.monotonic() + seconds
        while (found := self.condition(kind)).get("status") != status:
            if time.monotonic() > end:
                shown = json.dumps(self.managed().get("status", {}).get("conditions"), indent=1)
                raise AssertionError(f"{kind} of {self.id} did not become {status}: {shown}\n{self.gateway.told()[-3000:]}")
            time.sleep(0.1)
        return found

    def is_known(self) -> bool:
        """Whether the gateway, which looks into caches of its own, has got both of its tokens, too; and what is to be done with
        them, if it can say where that leads to."""
        listed = self.gateway.endpoint.request("GET", f"/v3/clusterregistrationtokens?clusterId={self.id}").json.get("data") or []
        fields = ("token", "nodeCommand") if self.gateway.is_announced else ("token",)
        return len(listed) == 2 and all(each[field] for each in listed for field in fields)

    def manifest(self) -> Answer:
        """What is applied to import it, once the gateway knows of the cluster."""
        found: list[Answer] = []

        def given() -> bool:
            found.append(self.gateway.nobody().request("GET", f"/v3/import/{self.token()}_{self.id}.yaml"))
            return found[-1].status == 200

        eventually(given, why="there is no manifest to import the cluster with")
        return found[-1]

    def token(self, kind: str = "default-token") -> str:
        answer = self.gateway.endpoint.request("GET", f"/api/v1/namespaces/{self.id}/secrets/crt-token-{kind}")
        if answer.status != 200:
            return ""
        return base64.b64decode(answer.json.get("data", {}).get("token", "")).decode()


@dataclass(frozen=True)
class Imported:
    cluster: Cluster
    agent: Agent

    def path(self, rest: str) -> str:
        return self.cluster.path(rest)

    @property
    def id(self) -> str:
        return self.cluster.id

    def lets_in(self, administrator: Person) -> None:
        """Waits for it: who may do everything may do so in a cluster a moment after that is there."""
        path = self.path("/api/v1/secrets")
        until(lambda: administrator.request("GET", path).status == 200, log=self.cluster.gateway)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.agent.kill()


class Agent(Program):
    """`remuda cluster-agent` beside a cluster. The token is in a file, which may change under it.

    Another one for the same cluster is `called` something else, and has a log and a token of its own.
    """

    def __init__(
        self,
        cluster: Cluster,
        downstream: Downstream,
        *,
        token: str = "",
        server: str = "",
        checksum: str | None = None,
        prefix: Sequence[str] | None = None,
        environ: dict[str, str] | None = None,
        options: Sequence[str] = (),
        called: str = "",
    ) -> None:
        prefix = downstream.prefix if prefix is None else prefix
        super().__init__(called or f"agent-{cluster.name}", downstream.directory, prefix, environ)
        self.cluster = cluster
        self.downstream = downstream
        self.server = server or cluster.gateway.url
        self.checksum = cluster.gateway.ca_checksum() if checksum is None else checksum
        self.options = list(options)
        self.token_file = downstream.directory / f"{self.name}.token"
        self.token_file.touch(mode=0o600)
        self.token_file.write_text(token or cluster.token())

    def command(self) -> list[str]:
        told = ["--kubeconfig", str(self.downstream.kubeconfig), "--server", self.server, "--token-file", str(self.token_file)]
        checked = ["--ca-checksum", self.checksum, "--strict-verify"] if self.checksum else []
        return [sys.executable, "-m", "remuda", "cluster-agent", *told, *checked, *self.options]


# --- clusters that are imported ------------------------------------------------------------------------------------------


class Downstream(Protocol):
    """A cluster as far as an agent needs to know it."""

    name: str
    directory: Path
    kubeconfig: Path
    prefix: list[str]


class Embedded(Program):
    """A second `remuda serve`, without people and clusters of its own."""

    def __init__(self, directory: Path, name: str = "embedded", prefix: Sequence[str] = ()) -> None:
        super().__init__(name, directory, prefix)
        self._served = Served(directory / "data")
        self.port = self._served.port
        self.kubeconfig = self._served.kubeconfig

    def endpoint(self) -> Endpoint:
        return self._served.endpoint

    def command(self) -> list[str]:
        return self._served.command()

    def start(self) -> None:
        super().start()
        eventually(lambda: READY.decode() in self.told() or not self.alive, 240, self.told())
        assert self.alive, self.told()


class Real(Program):
    """kube-apiserver, etcd and kube-controller-manager; `options` are those of `tests.real.cluster up`."""

    def __init__(self, directory: Path, name: str = "real", prefix: Sequence[str] = (), options: Sequence[str] = ()) -> None:
        need.programs("kubernetes", "etcd")
        super().__init__(name, directory, prefix)
        self.options = options
        self.kubeconfig = directory / "cluster" / "admin.kubeconfig"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.real.cluster", "up", "--directory", str(self.directory / "cluster"), *self.options]

    def start(self) -> None:
        super().start()
        eventually(lambda: "KUBECTL=" in self.told() or not self.alive, 900, self.told())
        assert self.alive, self.told()

    def kill(self) -> None:
        # It ends what it started when it is asked to.
        if self.alive:
            self.stop()


def kubectl(kubeconfig: Path, *arguments: str, prefix: Sequence[str] = (), check: bool = True, **options: Any) -> str:
    """The real kubectl; what it printed."""
    program = need.programs("kubernetes")["kubectl"]
    done = subprocess.run(
        [*prefix, str(program), f"--kubeconfig={kubeconfig}", *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, "HOME": str(kubeconfig.parent)},
        **options,
    )
    assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return f"{done.stdout}{done.stderr}"


def to_its_end(response: http.client.HTTPResponse) -> None:
    """Read what has no end of its own until it is cut, wherever in a line that may be. Raises TimeoutError when it goes on."""
    try:
        while response.readline():
            pass
    except TimeoutError:
        raise
    except (http.client.HTTPException, OSError):
        return


def until(
    true: Callable[[], object],
    seconds: float = 120,
    log: Program | Served | str | None = None,
    why: str = "it did not become true in time",
) -> None:
    """Waits, and when it was in vain says why, or shows what somebody told meanwhile."""
    end = time.monotonic() + seconds
    while not true():
        told = log if isinstance(log, str) else why if log is None else log.told()[-4000:]
        assert time.monotonic() < end, told
        time.sleep(0.02)


__all__ = [
    "PASSWORD",
    "Agent",
    "Cluster",
    "Downstream",
    "Embedded",
    "Gateway",
    "Imported",
    "Person",
    "Program",
    "Real",
    "kubectl",
    "to_its_end",
    "until",
]
