"""`remuda backup` beside a server that is written to, and `remuda restore` into every kind of store.

Whoever was let in is let in, nothing that was acknowledged before the backup is missing, and what is killed on the way does no
harm.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.backup.format import Backup
from remuda.apiserver.server import Config, Server
from remuda.apiserver.storage.store import Op, Put
from tests.api.harness import Endpoint
from tests.integration.apiserver.backup.small_backups import PASSPHRASE
from tests.real import need
from tests.real.etcd import EtcdCluster

from .conftest import SOAK
from .serving import Served, config_map, eventually, send

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

MAPS = "/api/v1/namespaces/default/configmaps"
PASSWORD, NEW_PASSWORD = "the password of the tests", "another password of the tests"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
JSON = {"Content-Type": "application/json"}


class Saved(Served):
    """With users, on a port that stays the same when another takes its place."""

    def __init__(self, directory: Path, *options: str, port: int = 0) -> None:
        super().__init__(directory, environ={"REMUDA_BOOTSTRAP_PASSWORD": PASSWORD})
        self.port = port or self.port
        self.sharing = options

    def command(self) -> list[str]:
        return [*super().command(), "--controllers=-capi", *self.sharing]


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdCluster]:
    need.programs("etcd")
    with EtcdCluster() as cluster:
        yield cluster


@pytest.fixture
def start() -> Iterator[Callable[..., Saved]]:
    started: list[Saved] = []

    def begin(directory: Path, *options: str, port: int = 0) -> Saved:
        made = Saved(directory, *options, port=port)
        started.append(made)
        made.start()
        return made

    yield begin
    for each in started:
        each.end()
        assert each.tracebacks() == [], each.told()


def remuda(*arguments: object, passphrase: str = PASSPHRASE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "remuda", *map(str, arguments)]
    environ = {**os.environ, "REMUDA_PASSPHRASE": passphrase}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ, stdin=subprocess.DEVNULL)


def done(*arguments: object) -> str:
    found = remuda(*arguments)
    assert found.returncode == 0, found.stderr
    return found.stdout


def refused(*arguments: object, **options: str) -> str:
    """The one sentence."""
    found = remuda(*arguments, **options)
    assert found.returncode == 1 and len(found.stderr.splitlines()) == 1, (found.returncode, found.stderr)
    return found.stderr


def stored_in(etcd: EtcdCluster, directory: Path, prefix: str) -> list[str]:
    token = directory / "token"
    token.write_text("the token of the tests")
    token.chmod(0o600)
    return ["--etcd", ",".join(etcd.urls), "--etcd-prefix", f"{prefix}/registry", "--token-file", str(token)]


class Writing:
    """Somebody who creates config maps all the time; `acknowledged` are their names, `newest` the last resourceVersion."""

    def __init__(self, endpoint: Endpoint, name: str) -> None:
        self._endpoint = endpoint
        self._name = name
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: list[str] = []
        self.newest = 0

    def __enter__(self) -> Writing:
        self._thread.start()
        eventually(lambda: len(self.acknowledged) > 20)
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join(90)

    def _run(self) -> None:
        while not self._enough.is_set():
            name = f"{self._name}-{len(self.acknowledged)}"
            answer = send(self._endpoint, "POST", MAPS, config_map(name, a=name))
            assert answer.status == 201, answer.body
            self.newest = int(answer.json["metadata"]["resourceVersion"])
            self.acknowledged.append(name)


class Client:
    """Somebody with the files, tokens and revisions of the first server; they meet one after the other at the same address."""

    def __init__(self, server: Saved) -> None:
        self.endpoint = server.endpoint
        secret = {"metadata": {"name": "kept"}, "stringData": {"a": "behind seven seals"}}
        answer = send(self.endpoint, "POST", "/api/v1/namespaces/default/secrets", secret)
        assert answer.status == 201, answer.body
        self.uid = answer.json["metadata"]["uid"]
        self.made = answer.json["metadata"]["creationTimestamp"]
        self.user_token = ""
        eventually(lambda: self._logs_in(PASSWORD), 240, "the first user was not made")
        change = json.dumps({"currentPassword": PASSWORD, "newPassword": NEW_PASSWORD}).encode()
        told = {**JSON, "Authorization": f"Bearer {self.user_token}"}
        changed = self.endpoint.request("POST", "/v3/users?action=changepassword", change, told, anonymous=True)
        assert changed.status == 200 and self._logs_in(NEW_PASSWORD), changed.raw
        eventually(lambda: self.endpoint.request("GET", "/api/v1/namespaces/default/serviceaccounts/default").status == 200)
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        self.account_token = send(self.endpoint, "POST", path, {"spec": {"expirationSeconds": 3600}}).json["status"]["token"]
        eventually(lambda: self._who(self.user_token) != "", 120, "the user's token is not known")
        self.user = self._who(self.user_token)
        assert self._who(self.account_token) == "system:serviceaccount:default:default"

    def _logs_in(self, password: str) -> bool:
        body = {"username": "admin", "password": password, "responseType": "json"}
        answer = send(self.endpoint, "POST", "/v3-public/localProviders/local?action=login", body)
        if answer.status in (200, 201):
            self.user_token = answer.json["token"]
        return answer.status in (200, 201)

    def _who(self, token: str) -> str:
        answer = self.endpoint.request(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            json.dumps(REVIEW).encode(),
            {**JSON, "Authorization": f"Bearer {token}"},
            anonymous=True,
        )
        return str(answer.json["status"]["userInfo"]["username"]) if answer.status == 201 else ""

    def finds_all(self, acknowledged: list[str], newest: int) -> None:
        """`newest` is the highest resourceVersion that anybody has seen so far."""
        secret = self.endpoint.request("GET", "/api/v1/namespaces/default/secrets/kept").json
        assert base64.b64decode(secret["data"]["a"]) == b"behind seven seals"
        assert (secret["metadata"]["uid"], secret["metadata"]["creationTimestamp"]) == (self.uid, self.made)
        # Whoever looks after users may still be starting.
        eventually(lambda: self._who(self.user_token) == self.user, 120, "the user's token is not good any more")
        assert self._who(self.account_token) == "system:serviceaccount:default:default"
        listed = self.endpoint.request("GET", MAPS).json
        assert {*acknowledged} <= {item["metadata"]["name"] for item in listed["items"]}
        assert min(int(item["metadata"]["resourceVersion"]) for item in listed["items"]) > newest
        assert int(listed["metadata"]["resourceVersion"]) > newest
        self._begins_anew(newest)

    def _begins_anew(self, revision: int) -> None:
        """A watch from before is told to list."""
        with self.endpoint.stream(f"{MAPS}?watch=1&resourceVersion={revision}") as response:
            told: Any = json.loads(response.readline()) if response.status == 200 else {"object": {"code": response.status}}
        assert told["object"]["code"] == 410


@pytest.mark.story
def test_a_server_moves_from_sqlite_to_etcd_and_back_with_all_users(
    start: Callable[..., Saved], etcd: EtcdCluster, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.backup", tmp_path / "second.backup"
    server = start(tmp_path / "a")
    client, port = Client(server), server.port
    with Writing(server.endpoint, "one") as writing:
        acknowledged = list(writing.acknowledged)
        assert "objects at revision" in done("backup", first, "--data-dir", server.directory)
        eventually(lambda: len(writing.acknowledged) > len(acknowledged) + 5)
    assert first.stat().st_mode & 0o777 == 0o600
    assert "is in use by another process" in refused("restore", first, "--data-dir", server.directory, "--force")
    assert server.stop() == 0, server.told()

    # Into a new etcd, whose own revisions begin at one.
    shared = stored_in(etcd, tmp_path, "/moved")
    assert "Restored " in done("restore", first, "--data-dir", tmp_path / "b", *shared)
    server = start(tmp_path / "b", *shared, port=port)
    client.finds_all(acknowledged, writing.newest)
    with Writing(client.endpoint, "two") as writing:
        acknowledged += writing.acknowledged
        done("backup", second, *shared)
    assert "works on this etcd: stop it first" in refused("restore", first, *shared, "--data-dir", tmp_path / "b", "--force")
    assert server.stop() == 0, server.told()

    done("restore", second, "--data-dir", tmp_path / "c")
    server = start(tmp_path / "c", port=port)
    client.finds_all(acknowledged, writing.newest)
    assert server.stop() == 0, server.told()

    # And from one data directory over another.
    assert f"kept in {tmp_path / 'c' / 'before-restore-'}" in done("restore", first, "--data-dir", tmp_path / "c", "--force")
    server = start(tmp_path / "c", port=port)
    client.finds_all([name for name in acknowledged if name.startswith("one-")], writing.newest)
    assert server.stop() == 0, server.told()


# --- what is told -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A data directory with some thousand objects, which no server has open, and a backup of it."""
    place = tmp_path_factory.mktemp("large")
    asyncio.run(fill(place / "data"))
    done("backup", place / "x.backup", "--data-dir", place / "data")
    return place / "data", place / "x.backup"


async def fill(data_dir: Path, count: int = 4000) -> None:
    server = await Server.open(Config(data_dir=data_dir))
    for start in range(0, count, 200):
        ops: list[Op] = []
        for number in range(start, start + 200):
            value = {"apiVersion": "v1", "kind": "ConfigMap", **config_map(f"m{number}", a=os.urandom(600).hex())}
            ops.append(Put(f"/registry/configmaps/default/m{number}", json.dumps(value).encode()))
        await server.store.write(ops)
    await server.close()


def test_what_is_wrong_with_a_file_is_told_in_one_sentence(large: tuple[Path, Path], tmp_path: Path, seed: int) -> None:
    data, backup = large
    said = done("restore", backup, "--verify-only")
    assert f"{backup} is valid: " in said and "of a server on sqlite" in said
    assert "is there already" in refused("backup", backup, "--data-dir", data)
    assert "must have at least 12" in refused("backup", tmp_path / "y", "--data-dir", data, passphrase="short")
    assert "give the passphrase of the backup" in refused("restore", backup, "--data-dir", tmp_path / "new", passphrase="")
    assert "is not the one that" in refused("restore", backup, "--data-dir", tmp_path / "new", passphrase="not this one at all")
    whole = backup.read_bytes()
    place = random.Random(seed).randrange(len(whole))
    damaged = tmp_path / "damaged.backup"
    damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    assert str(damaged) in refused("restore", damaged, "--data-dir", tmp_path / "new")
    assert not (tmp_path / "new").exists()


# --- wherever it is killed --------------------------------------------------------------------------------------------------


def killed_after(seconds: float, *arguments: object, until: Callable[[], bool] = lambda: True) -> bool:
    """Whether it was killed, so long after `until` held; else it had come to its end."""
    command = [sys.executable, "-m", "remuda", *map(str, arguments)]
    process = subprocess.Popen(command, env={**os.environ, "REMUDA_PASSPHRASE": PASSPHRASE}, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None and not until():
            time.sleep(0.002)
        time.sleep(seconds)
    finally:
        process.send_signal(signal.SIGKILL)
        code = process.wait(60)
    return code == -signal.SIGKILL


def test_a_killed_backup_leaves_the_old_file_or_the_new_one(large: tuple[Path, Path], tmp_path: Path, seed: int) -> None:
    data, _ = large
    path = tmp_path / "x.backup"
    done("backup", path, "--data-dir", data)
    chance = random.Random(seed)
    for _ in range(30 if SOAK else 3):
        seconds = chance.uniform(0.0, 0.4)
        killed_after(
            seconds, "backup", path, "--data-dir", data, "--force", until=lambda: bool([*tmp_path.glob(".x.backup.*.partial")])
        )
        backup = Backup.open(path)
        assert backup.verify(backup.key(PASSPHRASE)) == backup.header.objects > 4000, seconds
    done("backup", path, "--data-dir", data, "--force")
    assert [found.name for found in tmp_path.iterdir()] == ["x.backup"]


def test_a_killed_restore_into_etcd_is_never_taken_for_a_state(
    large: tuple[Path, Path], etcd: EtcdCluster, tmp_path: Path, seed: int
) -> None:
    _, backup = large
    chance = random.Random(seed)
    for number in range(10 if SOAK else 1):
        prefix = f"/killed{number}"
        shared = stored_in(etcd, tmp_path, prefix)
        mark = base64.b64encode(f"{prefix}/remuda/restoring".encode()).decode()

        def is_marked(mark: str = mark) -> bool:
            return bool(etcd.call("/v3/kv/range", {"key": mark}).get("kvs"))

        killed_after(chance.uniform(0.0, 0.3), "restore", backup, *shared, "--data-dir", tmp_path / "a", until=is_marked)
        server = Saved(tmp_path / f"s{number}", *shared)
        if is_marked():
            found = server.run()
            assert found.returncode == 1 and "a restore into this etcd has not come to its end" in found.stderr, found.stderr
            # The one that was killed is taken for alive for a while.
            until = time.monotonic() + 120
            while (again := remuda("restore", backup, *shared, "--data-dir", tmp_path / "a")).returncode != 0:
                assert "a restore on " in again.stderr and time.monotonic() < until, again.stderr
                time.sleep(1)
            assert f"Restored {Backup.open(backup).header.objects:,} objects" in again.stdout
        assert not is_marked()
        low, high = (base64.b64encode(f"{prefix}/registry/configmaps/default/m{end}".encode()).decode() for end in ("", "n"))
        counted = etcd.call("/v3/kv/range", {"key": low, "range_end": high, "count_only": True})
        assert int(counted["count"]) == 4000
