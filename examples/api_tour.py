"""A Remuda server with a temporary directory, a Kubernetes client of it, and an imported cluster.

Run it with the project's Python: `.venv/bin/python examples/api_tour.py`. The client is kubectl if it is installed, else Remuda's
own (`REMUDA_TOUR_CLIENT=own` selects it). Every step is checked; the exit code is 0 if all had the expected result.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.real import build

EXAMPLES = Path(__file__).resolve().parent
HORSES = EXAMPLES / "horses"
OWN_CLIENT = EXAMPLES / "own_client.py"
STEP_SECONDS = 60


class Wrong(Exception):
    """A step did not have the expected result."""


def paint(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def say(text: str) -> None:
    print(f"\n{paint('1', '# ' + text)}", flush=True)


def client_command() -> list[str]:
    """The command line of a client with kubectl's arguments."""
    if os.environ.get("REMUDA_TOUR_CLIENT") != "own":
        kubectl = shutil.which("kubectl") or build.programs("kubernetes", build_missing=False)["kubectl"]
        if Path(kubectl).exists():
            return [str(kubectl)]
    return [sys.executable, str(OWN_CLIENT)]


class Program:
    """`remuda …` as a user starts it, until it reports that it is ready."""

    def __init__(self, scratch: Path, name: str, arguments: list[str], there: str) -> None:
        print(paint("32", f"$ remuda {shlex.join(arguments).replace(str(scratch), '.')} &"), flush=True)
        self._name = name
        self._log = (scratch / f"{name}.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "remuda", *arguments], stdout=subprocess.PIPE, stderr=self._log, text=True, cwd=scratch
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("The first user"):
                print(f"  {line.rstrip().replace(str(scratch), '.')}")
            if line.startswith(there):
                return
        raise Wrong(f"{name} did not start:\n{self.log()}")

    def log(self) -> str:
        self._log.flush()
        self._log.seek(0)
        return self._log.read()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise Wrong(f"{self._name} did not stop in 30 s") from None
        if code != 0:
            raise Wrong(f"{self._name} ended with exit code {code}:\n{self.log()}")


class Server(Program):
    """`remuda serve` on a free port."""

    def __init__(self, scratch: Path, name: str, *options: str) -> None:
        started = time.monotonic()
        arguments = ["serve", "--data-dir", str(scratch / name), "--listen", "127.0.0.1:0", *options]
        super().__init__(scratch, name, arguments, "Ctrl-C")
        self.data = scratch / name
        self.kubeconfig = self.data / "kubeconfig"
        print(paint("2", f"  ({time.monotonic() - started:.2f} s from nothing to serving)"))


class Client:
    """Runs kubectl lines one after the other, prints each, and checks its result."""

    def __init__(self, kubeconfig: Path) -> None:
        self._command = client_command()
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        own = self._command[-1] == str(OWN_CLIENT)
        self._shown = "own_client.py" if own else "kubectl"
        self.name = "with Remuda's own client: there is no kubectl here" if own else "with kubectl"

    def run(self, line: str, *, fails: bool = False, expect: str = "", quiet: bool = False) -> str:
        shown = f"{self._shown} {line.replace(str(EXAMPLES), 'examples')}"
        print(paint("32", f"$ {shown}"), flush=True)
        done = subprocess.run(
            [*self._command, *shlex.split(line)],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STEP_SECONDS,
            check=False,
        )
        for told in [] if quiet else done.stdout.rstrip().splitlines():
            print(f"  {told}", flush=True)
        if (done.returncode != 0) != fails:
            raise Wrong(f"{shown} ended with exit code {done.returncode}")
        if not re.search(expect, done.stdout):
            raise Wrong(f"{shown} did not say {expect!r}")
        return done.stdout

    def watch(self, line: str) -> Watch:
        print(paint("32", f"$ {self._shown} {line} &"), flush=True)
        return Watch([*self._command, *shlex.split(line)], self._environment)


class Watch:
    """A watch that records its output."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())

    def wait_for(self, pattern: str) -> None:
        ends = time.monotonic() + STEP_SECONDS
        while not any(re.search(pattern, line) for line in self.lines):
            if time.monotonic() > ends:
                raise Wrong(f"the watch never showed {pattern!r}; it showed {self.lines}")
            time.sleep(0.05)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._reader.join(30)


def story(client: Client) -> None:
    say(f"A new kind of object, {client.name}")
    client.run(f"apply -f {HORSES / 'crd.yaml'}", expect="created")
    client.run("wait --for=condition=Established crd/horses.ranch.example --timeout=30s", expect="condition met")

    say("A watch, while objects are created")
    watch = client.watch("get horses --watch")
    try:
        apply = "apply --server-side --field-manager"
        client.run(f"{apply}=ranch -f {HORSES / 'herd.yaml'}", expect="horse.ranch.example/storm serverside-applied")
        client.run("get horses", expect=r"copper +chestnut +15\b")

        say("Invalid objects are refused by the rule in the kind's schema")
        client.run(f"apply -f {HORSES / 'pony.yaml'}", fails=True, expect="under 13 hands")

        say("Two managers of one field: server-side apply reports the conflict")
        client.run(f"{apply}=trainer -f {HORSES / 'trainer.yaml'}", expect="serverside-applied")
        client.run(
            f"{apply}=foreman -f {HORSES / 'foreman.yaml'}", fails=True, expect=r'(?s)conflict with "trainer".*spec\.rider'
        )
        client.run(f"{apply}=foreman --force-conflicts -f {HORSES / 'foreman.yaml'}", expect="serverside-applied")
        client.run("get horses copper", expect="luis")
        client.run("delete horse storm", expect="deleted")

        say("The output of the watch")
        watch.wait_for("luis")
        watch.wait_for("storm")
    finally:
        watch.stop()
    for line in watch.lines:
        print(f"  {line}")


def told(client: Client, line: str) -> dict[str, Any]:
    """An object, which is not printed because it may be a secret."""
    found: dict[str, Any] = json.loads(client.run(f"{line} -o json", quiet=True))
    return found


def remuda(scratch: Path, line: str, said: str = "") -> str:
    """A remuda command, with its files in the scratch directory."""
    print(paint("32", f"$ remuda {line.replace(str(scratch), '.')}"), flush=True)
    environment = {**os.environ, "HOME": str(scratch), "XDG_CONFIG_HOME": str(scratch / "config")}
    done = subprocess.run(
        [sys.executable, "-m", "remuda", *shlex.split(line)],
        env=environment,
        input=said,
        capture_output=True,
        text=True,
        timeout=STEP_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise Wrong(f"remuda {line} ended with exit code {done.returncode}: {done.stderr}")
    return done.stdout


def appear(what: Callable[[], str]) -> str:
    """A value that a controller will write."""
    ends = time.monotonic() + STEP_SECONDS
    while True:
        with contextlib.suppress(Wrong):
            if found := what():
                return found
        if time.monotonic() > ends:
            raise Wrong("a controller did not do its work in time")
        time.sleep(0.2)


def edge_story(scratch: Path, server: Server, client: Client) -> None:
    say("A cluster without incoming connections; here it is another Remuda")
    edge = Server(scratch, "edge", "--controllers=-capi,-access")
    try:
        say("Create its object")
        client.run(f"apply -f {EXAMPLES / 'edge' / 'cluster.yaml'}", expect="created")
        wanted = "get -n fleet-default cluster.provisioning.cattle.io edge"
        cluster = appear(lambda: told(client, wanted).get("status", {}).get("clusterName", ""))
        url = yaml.safe_load(server.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        client.run(f"wait --for=condition=BackingNamespaceCreated cluster.management.cattle.io/{cluster} --timeout=60s")
        secret = f"get -n {cluster} secret crt-token-default-token"
        (scratch / "token").touch(mode=0o600)
        (scratch / "token").write_text(base64.b64decode(appear(lambda: told(client, secret)["data"]["token"])).decode())

        say("Its agent connects to the server, with that token")
        checksum = hashlib.sha256((server.data / "pki" / "ca.crt").read_bytes()).hexdigest()
        options = ["--kubeconfig", str(edge.kubeconfig), "--server", url, "--token-file", "token", "--ca-checksum", checksum]
        agent = Program(scratch, "agent", ["cluster-agent", *options], "connected")
        try:
            client.run(f"wait --for=condition=Ready cluster.management.cattle.io/{cluster} --timeout=60s", expect="condition met")

            say("A user logs in, and uses that cluster under the same name")
            password = (server.data / "bootstrap-password").read_text().strip()
            login = f"login {url} --username admin --ca-file {server.data / 'pki' / 'ca.crt'} --password-stdin"
            print(f"  {remuda(scratch, login, f'{password}{chr(10)}a much longer password{chr(10)}').rstrip()}")
            (scratch / "edge.conf").touch(mode=0o600)
            (scratch / "edge.conf").write_text(remuda(scratch, "kubeconfig edge"))
            there = Client(scratch / "edge.conf")
            there.run(f"apply -f {HORSES / 'crd.yaml'}", expect="created")
            there.run("wait --for=condition=Established crd/horses.ranch.example --timeout=30s", expect="condition met")
            there.run(f"apply -f {HORSES / 'herd.yaml'}", expect="created")
            there.run("get horses", expect=r"storm +grey")
        finally:
            agent.stop()
    finally:
        edge.stop()


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="remuda-tour-") as name:
        scratch = Path(name)
        say("A Kubernetes API on this machine, with Python only")
        server: Server | None = None
        try:
            server = Server(scratch, "data")
            client = Client(server.kubeconfig)
            story(client)
            edge_story(scratch, server, client)
            say("Stop: SIGTERM ends the watches and closes the database")
            server.stop()
            print(paint("32", "  stopped cleanly; every step had the expected result"))
            return 0
        except (Wrong, subprocess.TimeoutExpired) as error:
            print(paint("31", f"\nthe tour failed: {error}"), file=sys.stderr)
            if server is not None:
                with contextlib.suppress(Wrong):
                    server.stop()
                print(server.log()[-4000:], file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
