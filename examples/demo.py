"""`make demo`: a Remuda server on a temporary directory, and a client that uses it as the Kubernetes it is.

The client is kubectl where there is one, else Remuda's own (`REMUDA_DEMO_CLIENT=own` asks for that). Every step is checked;
the exit code says whether all of them went as told.
"""

from __future__ import annotations

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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.real import build

HORSES = Path(__file__).resolve().parent / "horses"
OWN_CLIENT = Path(__file__).resolve().parent / "own_client.py"
STEP_SECONDS = 60


class Wrong(Exception):
    """A step did not go as told."""


def paint(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def say(text: str) -> None:
    print(f"\n{paint('1', '# ' + text)}", flush=True)


def client_command() -> list[str]:
    """How to call a client that understands kubectl's arguments."""
    if os.environ.get("REMUDA_DEMO_CLIENT") != "own":
        kubectl = shutil.which("kubectl") or build.programs("kubernetes", build_missing=False)["kubectl"]
        if Path(kubectl).exists():
            return [str(kubectl)]
    return [sys.executable, str(OWN_CLIENT)]


class Server:
    """`remuda serve` as a user would start it, on a port that is free."""

    def __init__(self, directory: Path) -> None:
        arguments = [sys.executable, "-m", "remuda", "serve", "--data-dir", str(directory), "--listen", "127.0.0.1:0"]
        print(f"$ remuda {' '.join(arguments[3:])}", flush=True)
        self._log = directory.with_name("server.log").open("w+")
        started = time.monotonic()
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=self._log, text=True)
        self.kubeconfig = directory / "kubeconfig"
        lines = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            print(f"  {line.rstrip()}")
            lines.append(line)
            if line.startswith("Ctrl-C"):
                break
        if not lines or not self.kubeconfig.exists():
            raise Wrong(f"the server did not start:\n{self.log()}")
        print(paint("2", f"  ({time.monotonic() - started:.2f} s from nothing to serving)"))

    def log(self) -> str:
        self._log.flush()
        self._log.seek(0)
        return self._log.read()

    def stop(self) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise Wrong("the server did not stop in 30 s") from None


class Client:
    """Runs one kubectl line after the other, shows it as typed, and checks how it ended."""

    def __init__(self, kubeconfig: Path) -> None:
        self._command = client_command()
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        own = self._command[-1] == str(OWN_CLIENT)
        self._shown = "own_client.py" if own else "kubectl"
        self.name = "with Remuda's own client: there is no kubectl here" if own else "with kubectl"

    def run(self, line: str, *, fails: bool = False, expect: str = "") -> str:
        shown = f"{self._shown} {line.replace(str(HORSES), 'examples/horses')}"
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
        for told in done.stdout.rstrip().splitlines():
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
    """A client that stays and writes down what happens."""

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

    say("Somebody watches while objects come")
    watch = client.watch("get horses --watch")
    try:
        apply = "apply --server-side --field-manager"
        client.run(f"{apply}=ranch -f {HORSES / 'herd.yaml'}", expect="horse.ranch.example/storm serverside-applied")
        client.run("get horses", expect=r"copper +chestnut +15\b")

        say("Bad ones are refused, by the rule in the kind's own schema")
        client.run(f"apply -f {HORSES / 'pony.yaml'}", fails=True, expect="under 13 hands")

        say("Two people, one field: server-side apply knows whose it is")
        client.run(f"{apply}=trainer -f {HORSES / 'trainer.yaml'}", expect="serverside-applied")
        client.run(
            f"{apply}=foreman -f {HORSES / 'foreman.yaml'}", fails=True, expect=r'(?s)conflict with "trainer".*spec\.rider'
        )
        client.run(f"{apply}=foreman --force-conflicts -f {HORSES / 'foreman.yaml'}", expect="serverside-applied")
        client.run("get horses copper", expect="luis")
        client.run("delete horse storm", expect="deleted")

        say("What the watch saw meanwhile")
        watch.wait_for("luis")
        watch.wait_for("storm")
    finally:
        watch.stop()
    for line in watch.lines:
        print(f"  {line}")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="remuda-demo-") as scratch:
        say("A Kubernetes API on this machine, with nothing but Python")
        server: Server | None = None
        try:
            server = Server(Path(scratch) / "data")
            story(Client(server.kubeconfig))
            say("And stop: SIGTERM ends the watches and closes the database")
            code = server.stop()
            if code != 0:
                raise Wrong(f"the server ended with exit code {code}:\n{server.log()}")
            print(paint("32", "  stopped clean; every step went as told"))
            return 0
        except (Wrong, subprocess.TimeoutExpired) as error:
            print(paint("31", f"\nthe demo failed: {error}"), file=sys.stderr)
            if server is not None:
                server.stop()
                print(server.log()[-4000:], file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
