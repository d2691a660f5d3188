"""What is on disk, and when: synced before the answer, refused when damaged, served on when there is no room left.

The store has tests of its own for this; here the server is started as a user starts it and looked at from outside.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import sqlite3
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real import need

from .serving import Served, config_map, eventually, make_namespace, send

# --- synced before it is acknowledged ---------------------------------------------------------------------------------


def _strace() -> list[str]:
    found = shutil.which("strace")
    # With the first it does not stop at calls that nobody asked for, which makes a server many times as quick.
    ways = [[found, "--seccomp-bpf", "-f"], [found, "-f"]] if found is not None else []
    able = [way for way in ways if not subprocess.run([*way, "-o", "/dev/null", "true"], capture_output=True).returncode]
    if not able:
        need.absent("strace is not installed, or may not trace here")
    return able[0]


def _settle(connection: ssl.SSLSocket) -> None:
    """A server that is slow may still have to send tickets of the handshake when it has got the first request."""
    connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    received = connection.recv(65536)
    assert received.startswith(b"HTTP/1.1 200"), received


def _post(connection: ssl.SSLSocket, path: str, mark: str) -> None:
    body = json.dumps(config_map(mark.lower(), mark=mark))
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall((head + body).encode())
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    assert received.startswith(b"HTTP/1.1 201"), received


@pytest.mark.story
@pytest.mark.timeout(600)
def test_a_write_is_synced_between_its_receipt_and_its_acknowledgement(serve: Callable[..., Served], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    calls = "trace=read,recvfrom,recvmsg,write,writev,sendto,sendmsg,pwrite64,fsync,fdatasync"
    # -D: strace is the child, so the process that is started (and stopped) here is the server itself.
    served = serve(prefix=[*_strace(), "-D", "-yy", "-s", "70000", "-e", calls, "-o", str(trace)])
    collection = make_namespace(served, "traced")
    sent: list[tuple[str, int]] = []
    with served.connect() as connection:
        _settle(connection)
        for number in range(3):
            _post(connection, collection, f"MARK{number}END")
            sent.append((f"MARK{number}END", connection.getsockname()[1]))
    connections = [served.connect() for _ in range(8)]
    for each in connections:
        _settle(each)
    together = [(f"MARK{number}END", each) for number, each in enumerate(connections, 100)]
    threads = [threading.Thread(target=_post, args=(each, collection, mark)) for mark, each in together]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    sent += [(mark, each.getsockname()[1]) for mark, each in together]
    for each in connections:
        each.close()
    assert served.stop() == 0
    lines = trace.read_text(errors="replace").splitlines()
    for mark, port in sent:
        _check_order(lines, mark, port)


def _check_order(lines: list[str], mark: str, port: int) -> None:
    """The object's bytes go into the log, the log is synced, and only then something goes to the client."""
    ours = re.compile(rf"\b(write|writev|sendto|sendmsg)\(\d+<TCP:\[127\.0\.0\.1:\d+->127\.0\.0\.1:{port}\]>")
    logged = next((at for at, line in enumerate(lines) if "pwrite64(" in line and "state.db-wal" in line and mark in line), None)
    assert logged is not None, f"{mark} was never written to the log"
    synced = _sync_after(lines, logged)
    assert synced is not None, f"the log was never synced after {mark}"
    # Lines begin with the call and its file, and go on with all that was written.
    answers = [at for at, line in enumerate(lines) if ours.search(line[:200])]
    received = [
        at
        for at, line in enumerate(lines[:logged])
        if re.search(rf"\b(read|recvfrom|recvmsg)\(\d+<TCP:\[127\.0\.0\.1:\d+->127\.0\.0\.1:{port}\]>", line[:200])
    ]
    assert received, f"no request was received on port {port} before {mark} was written"
    early = [lines[at][:200] for at in answers if received[-1] < at < synced]
    assert not early, f"the client of {mark} heard something before the sync: {early}"
    assert any(at > synced for at in answers), f"the client of {mark} was never answered"


def _sync_after(lines: list[str], start: int) -> int | None:
    """Where the first sync of the log that begins after `start` has ended well."""
    for at in range(start, len(lines)):
        begun = re.match(r"(\d+) +(fdatasync|fsync)\(\d+<[^>]*state\.db-wal>", lines[at])
        if begun is None:
            continue
        if lines[at].rstrip().endswith("= 0"):
            return at
        for later in range(at + 1, len(lines)):
            if re.match(rf"{begun[1]} +<\.\.\. {begun[2]} resumed>\) += 0", lines[later]):
                return later
        return None
    return None


# --- a data directory that can't be served ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with something in it, left by a server that stopped clean."""
    served = Served(tmp_path_factory.mktemp("filled") / "data")
    served.start()
    try:
        collection = make_namespace(served, "kept")
        endpoint = served.endpoint
        for number in range(300):
            assert send(endpoint, "POST", collection, config_map(f"m{number}", a="x" * 1000)).status == 201
        assert served.stop() == 0
    finally:
        served.end()
    return served.directory


@pytest.fixture
def stopped(filled: Path, tmp_path: Path) -> Served:
    """A copy of it to spoil."""
    shutil.copytree(filled, tmp_path / "data")
    return Served(tmp_path / "data")


def refusal(served: Served, **options: object) -> str:
    """The one sentence with which it does not start."""
    done = served.run(**options)
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    assert done.stderr.startswith("remuda: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stderr


def _overwrite(path: Path, at: float, with_: bytes) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(int(size * at) // 4096 * 4096)
        file.write(with_)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "garbage at the beginning": lambda path: _overwrite(path, 0.0, b"\xde\xad\xbe\xef" * 64),
    "cut in half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "not a database": lambda path: path.write_bytes(b"hello\n" * 1000),
    "another program's database": lambda path: _foreign(path),
}


def _foreign(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE things (name TEXT)")
    connection.commit()
    connection.close()


@pytest.mark.story
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_database_is_refused_with_what_to_do(stopped: Served, how: str) -> None:
    DAMAGE[how](stopped.directory / "state.db")
    told = refusal(stopped)
    assert "state.db" in told
    assert re.search(r"backup|restore|another data directory", told, re.IGNORECASE), told


def test_damage_in_the_middle_is_found_after_a_crash(stopped: Served) -> None:
    stopped.start()
    try:
        assert send(stopped.endpoint, "POST", "/api/v1/namespaces/kept/configmaps", config_map("more")).status == 201
    finally:
        stopped.end()
    for part in (0.3, 0.5, 0.7):
        _overwrite(stopped.directory / "state.db", part, os.urandom(4096))
    told = refusal(stopped)
    assert re.search(r"backup|restore", told, re.IGNORECASE), told


@pytest.mark.story
def test_a_second_server_on_the_data_directory_is_refused(served: Served) -> None:
    other = Served(served.directory)
    told = refusal(other)
    assert f"is in use by another process (pid {served.pid})" in told
    assert served.endpoint.request("GET", "/readyz").status == 200


@pytest.mark.parametrize("name", ["pki/ca.key", "pki/service-account.key", "pki/serving.key", "encryption.yaml"])
def test_keys_that_others_can_read_are_refused(stopped: Served, name: str) -> None:
    (stopped.directory / name).chmod(0o644)
    told = refusal(stopped)
    assert Path(name).name in told
    assert "chmod 600" in told or "0600" in told, told


@pytest.mark.parametrize("name", ["pki/ca.key", "pki/serving.key", "pki/service-account.key", "encryption.yaml"])
def test_keys_that_are_no_keys_are_refused(stopped: Served, name: str) -> None:
    (stopped.directory / name).write_text("this is no key\n")
    told = refusal(stopped)
    assert Path(name).name in told


def test_a_data_directory_that_cant_be_written_is_refused(stopped: Served) -> None:
    directory = str(stopped.directory)
    if os.getuid() == 0:
        # To root modes mean nothing: a mount of its own that is read-only does.
        script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
        stopped.prefix = ["unshare", "--mount", "sh", "-c", script, directory]
        if subprocess.run([*stopped.prefix, "true"], capture_output=True).returncode:
            pytest.skip("root here may not mount, so nothing is read-only to it")
        told = refusal(stopped)
    else:
        for path in [stopped.directory, *stopped.directory.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o222)
        try:
            told = refusal(stopped)
        finally:
            for path in [stopped.directory, *stopped.directory.rglob("*")]:
                path.chmod(0o700 if path.is_dir() else 0o600)
    assert directory in told


# --- no room left -----------------------------------------------------------------------------------------------------


def test_a_full_disk_stops_writes_with_503_and_reads_go_on(served: Served) -> None:
    """The files may not grow any more, as on a full disk; when there is room again writes go on."""
    collection = make_namespace(served, "full")
    endpoint = served.endpoint
    kept = []
    for number in range(20):
        assert send(endpoint, "POST", collection, config_map(f"before{number}", a="x" * 1000)).status == 201
        kept.append(f"before{number}")
    largest = max(path.stat().st_size for path in served.directory.glob("state.db*"))
    soft, hard = resource.prlimit(served.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(served.pid, resource.RLIMIT_FSIZE, (largest + 64 * 1024, hard))
    refused = None
    for number in range(400):
        answer = send(endpoint, "POST", collection, config_map(f"during{number}", a="x" * 4000))
        if answer.status != 201:
            refused = answer
            break
        kept.append(f"during{number}")
    assert refused is not None, "the limit was never met"
    assert refused.status == 503, refused.body
    assert (refused.json["kind"], refused.json["reason"]) == ("Status", "ServiceUnavailable")
    # Again and again, without getting worse.
    for number in range(20):
        answer = send(endpoint, "POST", collection, config_map(f"never{number}", a="x" * 4000))
        assert answer.status in (201, 503), answer.body
        if answer.status == 201:
            kept.append(f"never{number}")
    assert _names(served, collection) == sorted(kept)
    assert endpoint.request("GET", f"{collection}/before3").status == 200
    assert endpoint.request("GET", "/livez").status == 200
    with endpoint.stream(f"{collection}?watch=1") as watch:
        assert watch.status == 200
        assert watch.readline().startswith(b'{"type":"ADDED"')
    resource.prlimit(served.pid, resource.RLIMIT_FSIZE, (soft, hard))
    eventually(lambda: send(endpoint, "POST", collection, config_map("after", a="y")).status == 201)
    kept.append("after")
    assert _names(served, collection) == sorted(kept)
    served.kill()
    served.start()
    assert _names(served, collection) == sorted(kept)


def _names(served: Served, collection: str) -> list[str]:
    listed = served.endpoint.request("GET", collection)
    assert listed.status == 200, listed.body
    return sorted(item["metadata"]["name"] for item in listed.json["items"] if item["metadata"]["name"] != "kube-root-ca.crt")
