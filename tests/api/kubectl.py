"""The real kubectl, run with the same command line against Remuda and against a real server.

Each side has a home directory of its own, so that neither sees what discovery cached from the other. What kubectl prints and
the code it ends with are compared under :data:`MASKS`, which adds to :mod:`.masks` what only shows in printed text.
"""

from __future__ import annotations

import difflib
import json
import os
import queue
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from . import recording
from .harness import OURS, REAL, SIDES
from .masks import HOST, REVISION_TEXT, TOKEN, UUID, masked

SECONDS = 90
Shape = Callable[[str], str]
_AGE = r"(?:\d+(?:s|m|h|d|ms|y))(?:\d+(?:\.\d+)?[smhd])?"
# In this order: what is found first is no longer there for the next.
MASKS: tuple[tuple[re.Pattern[str], str], ...] = (
    (TOKEN, "<token>"),
    # As in masks, but also inside printed JSON and YAML.
    (re.compile(r"-----BEGIN CERTIFICATE-----(?:[\w+/=\s]|\\n)+-----END CERTIFICATE-----(?:\\n|\n)*"), "<certificate>"),
    (UUID, "<uid>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z| \+0000 UTC)?"), "<time>"),
    (re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"), "<time>"),
    (HOST, "<host>"),
    # The log lines of client-go begin with a time and a process id.
    (re.compile(r"(?m)^([EWI])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ "), r"\1<when> "),
    (re.compile(r"/tmp/kubectl-edit-\w+\.yaml"), "<file>"),
    (REVISION_TEXT, "<revision>"),
    (re.compile(r'(?<=resourceVersion: )"?\d+"?|(?<="resourceVersion": )"\d+"|(?<="resourceVersion":)"\d+"'), "<revision>"),
    (re.compile(r"(?<=Resource Version: )\s*\d+|(?<=resource version to be 1, was )\d+"), "<revision>"),
    # Said or not by chance when kubectl gives up waiting: its watch and its own clock end at the same time.
    (re.compile(r'(?m)^(?:I<when> reflector.go.*|E<when> reflector.go.* err="(?:.*: )?context deadline exceeded" .*)\n'), ""),
    (re.compile(r"(?<=kube-api-access-)[a-z0-9]{5}\b"), "<random>"),
    # Addresses that a service was given, unless the test asked for one below 10.96.1.0, which are left to people.
    (re.compile(r"\b10\.96\.(?!0\.)\d{1,3}\.\d{1,3}\b"), "<address>"),
    (re.compile(r"\b3[0-2]\d{3}\b"), "<node port>"),
    (re.compile(rf"(?<=\s){_AGE}(?=\s|$)"), "<age>"),
    # How often a controller has said it by now.
    (re.compile(r" \(x\d+ over [^)]*\)"), ""),
    (re.compile(r"\(\d+ bytes\)"), "(<size> bytes)"),
    # kubectl aligns its columns to what is in them, which the masks have made equally long only now.
    (re.compile(r"(?<=\S)[ \t]{2,}"), "  "),
    (re.compile(r"[ \t]+(?=\n|$)"), ""),
    # kube-apiserver repairs a service that its own cache of addresses has not heard of yet, now and then, and says so; likewise
    # one that got its node port while all ports were looked at.
    (re.compile(r"(?m)^.*  (?:ip|port)allocator-repair-controller  .*\n?"), ""),
    (re.compile(r"(?m)^Events:\n  Type  Reason .*\n  ----  ------ .*\n(?!  )"), "Events:  <none>\n"),
)


@dataclass
class Said:
    """How one kubectl ended."""

    code: int
    out: str
    err: str


def plain(text: str) -> str:
    for pattern, name in MASKS:
        text = pattern.sub(name, text)
    return text


def same_text(text: str) -> str:
    return text


def sorted_json(text: str) -> str:
    """What a server says verbatim: the order of its keys has no meaning."""
    try:
        return json.dumps(masked(json.loads(_unmasked_revisions(text))), indent=1, sort_keys=True)
    except ValueError:
        return text


def in_order_of_managers(text: str) -> str:
    """Owners are listed by the second in which they wrote, which tells nothing: here by name."""
    found = yaml.safe_load(text) if text.strip() else None
    if not isinstance(found, dict):
        return text
    for obj in found.get("items") or [found]:
        obj.get("metadata", {}).get("managedFields", []).sort(key=lambda owner: yaml.safe_dump(owner))
    return yaml.safe_dump(found)


def _unmasked_revisions(text: str) -> str:
    return text.replace('"resourceVersion":<revision>', '"resourceVersion":"1"')


def without_lines(pattern: str) -> Shape:
    """Leave out the lines that match: words that each server has of its own."""
    unwanted = re.compile(pattern)
    return lambda text: "\n".join(line for line in text.splitlines() if not unwanted.search(line))


def without_others(own: str) -> Shape:
    """Leave out what other tests have in the whole cluster: their names are made as `own` is (`recording.Tape.new_name`)."""
    foreign = re.compile(rf"(?m)^(?:\S+/)?(?!{re.escape(own)}\b)t\d+-\d{{3,}}\b.*\n?")
    return lambda text: foreign.sub("", text)


def sorted_lines(text: str) -> str:
    return "\n".join(sorted(text.splitlines()))


@dataclass(repr=False)
class Kubectl:
    program: Path
    homes: dict[str, Path]
    ns: str
    # kubectl runs here, so that manifests are named the same on both sides.
    directory: Path
    editor: str = ""
    count: int = 0
    extra: dict[str, str] = field(default_factory=dict)
    # Manifests by the name of their file.
    written: dict[str, str] = field(default_factory=dict)

    def __call__(
        self,
        *args: str,
        stdin: str | None = None,
        shape: Shape = same_text,
        compare: bool = True,
        code: int | None = None,
        seconds: float = SECONDS,
    ) -> dict[str, Said]:
        """Run on both and compare; `shape` cuts down what is printed to what is to be compared."""
        started = {side: self.start(side, *args, piped=stdin is not None) for side in self._sides()}
        said = self._recorded(args, stdin, {side: _finished(process, stdin, seconds) for side, process in started.items()})
        if compare:
            self.compare(said, args, shape)
        if code is not None:
            assert said[REAL].code == code, f"kubectl {' '.join(args)}: {said[REAL]}"
        return said

    def on(self, side: str, *args: str, stdin: str | None = None) -> Said:
        said = {}
        if side in self._sides():
            said = {side: _finished(self.start(side, *args, piped=stdin is not None), stdin, SECONDS)}
        return said[OURS] if side == OURS else self._recorded(args, stdin, said)[REAL]

    @staticmethod
    def _sides() -> tuple[str, ...]:
        """Where it really runs."""
        return (OURS,) if recording.current().plays else SIDES

    def _recorded(self, args: Iterable[str], stdin: str | None, said: dict[str, Said]) -> dict[str, Said]:
        """With what was said on the real side, which is recorded or comes from the recording."""
        files = [self.written[arg] for arg in args if arg in self.written]
        sent = recording.sent("\n".join([stdin or "", *files]))
        key = "kubectl " + " ".join(arg.replace(str(self.directory), "<directory>") for arg in args)

        def live() -> list[Any]:
            return [said[REAL].code, said[REAL].out, said[REAL].err]

        return {**said, REAL: Said(*recording.current().take(key, sent, live))}

    def with_token(self, side: str, token: str, *args: str) -> Said:
        """As the bearer of a token, and without the administrator's certificate."""
        config = yaml.safe_load((self.homes[side] / "config").read_text())
        config["users"] = [{"name": "admin", "user": {"token": token}}]
        path = self.directory / f"{side}.config"
        path.write_text(yaml.safe_dump(config))
        return self.on(side, "--kubeconfig", str(path), *args)

    def compare(self, said: dict[str, Said], args: tuple[str, ...], shape: Shape = same_text) -> None:
        self.count += 1
        if "--show-managed-fields" in args and "yaml" in args:
            shape = in_order_of_managers
        shown = {side: _shown(said[side], shape) for side in SIDES}
        recording.current().compared("kubectl " + " ".join(args), shown[REAL])
        assert shown[OURS] == shown[REAL], difference(shown, "kubectl " + " ".join(args))

    def start(self, side: str, *args: str, piped: bool = False, told: Path | None = None) -> subprocess.Popen[str]:
        """`told`: where it writes what it would say on stderr, and what it does with its server."""
        home = self.homes[side]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KUBECONFIG": str(home / "config"),
            "KUBECACHEDIR": str(home / "cache"),
            "KUBE_EDITOR": self.editor or "false",
            "TZ": "UTC",
            **self.extra,
        }
        command = [str(self.program), *(["-n", self.ns] if "-n" not in args and args[:1] != ("config",) else []), *args]
        with ExitStack() as stack:
            return subprocess.Popen(
                [each.replace("{ns}", self.ns) for each in (*command, *(["-v=6"] if told is not None else []))],
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(told.open("w")) if told is not None else subprocess.PIPE,
                env=environment,
                cwd=self.directory,
                text=True,
            )

    def forget(self) -> None:
        """Discover anew: kubectl keeps what was served before until it misses something."""
        for home in self.homes.values():
            shutil.rmtree(home / "cache", ignore_errors=True)

    def write(self, name: str, *objects: object) -> str:
        """A manifest file for `-f`."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump_all(objects, sort_keys=False).replace("{ns}", self.ns)
        path.write_text(text)
        self.written[name] = text
        return name

    def apply(self, *objects: object) -> None:
        """Objects that a test needs on both sides before it begins."""
        for side in SIDES:
            said = self.on(side, "create", "-f", "-", stdin=yaml.safe_dump_all(objects).replace("{ns}", self.ns))
            assert said.code == 0, f"{side}: {said.err}"

    def until(self, *args: str, shows: str) -> None:
        """Poll until the output holds `shows` on both."""
        for attempt in recording.attempts(f"kubectl {' '.join(args)} shows {shows!r}"):
            said = self(*args, compare=False)
            if all(shows in each.out + each.err for each in said.values()):
                return
            attempt.saw(said)

    @contextmanager
    def meanwhile(self, *args: str, shape: Shape = same_text) -> Iterator[None]:
        """Start on both, do the block when they wait for what it does, then wait for their end and compare."""
        told = {side: self.directory / f"{side}.told" for side in SIDES}
        started = {side: self.start(side, *args, told=told[side]) for side in self._sides()}
        try:
            _until_they_follow(started, told)
            yield
            said = {side: _finished(process, None, SECONDS) for side, process in started.items()}
        finally:
            _end(started.values())
        for side in started:
            said[side].err += _DOING.sub("", told[side].read_text())
        self.compare(self._recorded(args, None, said), args, shape)

    def watch(self, *args: str, act: list[Callable[[], object]], first: int, shape: Shape = same_text) -> list[str]:
        """Follow on both: `first` lines before acting, then one more line for each act; the lines are compared."""
        told = {side: self.directory / f"{side}.told" for side in SIDES}
        started = {side: self.start(side, *args, told=told[side]) for side in self._sides()}
        lines: dict[str, list[str]] = {side: [] for side in started}
        try:
            feeds = {side: _lines(process) for side, process in started.items()}

            def read(count: int) -> None:
                for side in started:
                    for _ in range(count):
                        try:
                            lines[side].append(feeds[side].get(timeout=60))
                        except queue.Empty:
                            lines[side].append("<nothing>\n")

            read(first)
            # What is printed first does not show that the watch is open; a change before that may go unprinted.
            _until_they_follow(started, told)
            for step in act:
                step()
                read(1)
        finally:
            _end(started.values())
        said = self._recorded(args, None, {side: Said(0, "".join(lines[side]), "") for side in started})
        self.compare(said, args, shape)
        return said[REAL].out.splitlines(keepends=True)


# What kubectl tells of its own doing, with more words than usual.
_DOING = re.compile(r"(?m)^I\d{4} .*\n?")
# It has a watch, has filled the cache that it waits on, or has looked for what is to be created.
_FOLLOWS = re.compile(
    r'(?m)"Caches populated"|^(?!.*sendInitialEvents).*[?&]watch=true[^"]*" status="200 OK"|status="404 Not Found"'
)


def _until_they_follow(started: dict[str, subprocess.Popen[str]], told: dict[str, Path]) -> None:
    """Until all of them wait for what their server tells them next, or have ended."""
    end = time.monotonic() + SECONDS
    for side, process in started.items():
        while process.poll() is None and not _FOLLOWS.search(text := told[side].read_text()):
            assert time.monotonic() < end, f"{side}: kubectl does not follow anything: {text}"
            time.sleep(0.02)


def _finished(process: subprocess.Popen[str], stdin: str | None, seconds: float) -> Said:
    try:
        out, err = process.communicate(stdin, timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return Said(-1, out, f"{err}\n<did not end within {seconds} s>\n")
    return Said(process.returncode, out, err or "")


def _end(processes: object) -> None:
    for process in list(processes):  # type: ignore[call-overload]
        if process.poll() is None:
            process.kill()
        process.communicate()


def _lines(process: subprocess.Popen[str]) -> queue.Queue[str]:
    found: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    source = process.stdout

    def pump() -> None:
        for line in source:
            found.put(line)

    threading.Thread(target=pump, daemon=True).start()
    return found


def _shown(said: Said, shape: Shape) -> list[str]:
    return [
        f"exit code {said.code}",
        "--- stdout",
        *shape(plain(said.out)).splitlines(),
        "--- stderr",
        *shape(plain(said.err)).splitlines(),
    ]


def difference(shown: dict[str, list[str]], what: str) -> str:
    lines = list(difflib.unified_diff(shown[REAL], shown[OURS], "kube-apiserver", "remuda", lineterm="", n=4))
    return f"{what}\n" + "\n".join(lines[:150])


def write_config(home: Path, source: Path) -> None:
    """The kubeconfig of one side, with the same names on both."""
    given = yaml.safe_load(source.read_text())
    cluster, user = given["clusters"][0]["cluster"], given["users"][0]["user"]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "admin"}}],
        "current-context": "it",
    }
    home.mkdir(parents=True)
    (home / "config").write_text(yaml.safe_dump(config))
