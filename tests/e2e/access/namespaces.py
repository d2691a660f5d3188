"""Networks of their own for tests: a namespace with one wire to us, a firewall in it, and a proxy that asks for a password.

Needs root, `ip` and `nft`; elsewhere the test is skipped with the reason (:func:`tests.real.need.absent`).
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.e2e.serving import eventually
from tests.real import need
from tests.real.ports import free_port

from .harness import Program

_numbers = itertools.count()


def run(*command: str, stdin: str | None = None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


class Namespace:
    """A network namespace. `outside` is our address on the wire, `inside` that of the namespace."""

    def __init__(self) -> None:
        for program in ("ip", "nft"):
            if shutil.which(program) is None and not Path(f"/usr/sbin/{program}").exists():
                need.absent(f"no `{program}` is installed")
        if os.geteuid() != 0:
            need.absent("network namespaces are made by root")
        number = next(_numbers)
        mark = f"{os.getpid() % 0x10000:04x}{number:x}"
        self.name = f"remuda-{mark}"
        self._near, self._far = f"rn{mark}", f"rf{mark}"
        # A /30 of its own for each, so that several runs at once don't meet.
        slot = (os.getpid() * 16 + number) % (64 * 256)
        base = f"10.{213 + slot // (64 * 64) % 4}.{slot // 64 % 256}.{slot % 64 * 4}"
        self.outside, self.inside = (base.rsplit(".", 1)[0] + f".{int(base.rsplit('.', 1)[1]) + each}" for each in (1, 2))

    @property
    def prefix(self) -> Sequence[str]:
        """Put before a command to run it inside."""
        return ["ip", "netns", "exec", self.name]

    def __enter__(self) -> Self:
        try:
            run("ip", "netns", "add", self.name)
        except AssertionError as error:
            need.absent(f"no network namespace can be made here: {error}")
        try:
            run("ip", "link", "add", self._near, "type", "veth", "peer", "name", self._far, "netns", self.name)
            run("ip", "address", "add", f"{self.outside}/30", "dev", self._near)
            run("ip", "link", "set", self._near, "up")
            for command in ("link set lo up", f"address add {self.inside}/30 dev {self._far}", f"link set {self._far} up"):
                run("ip", "-n", self.name, *command.split())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._near], capture_output=True, check=False)

    def only_outward(self, *ports: int, inside: Sequence[str] = ()) -> None:
        """Everything inbound is dropped without a word, and outward only these ports of ours are let through.

        `inside` are devices of the cluster's own, such as the bridge of its pods.
        """
        let = "".join(f"ip daddr {self.outside} tcp dport {port} accept; " for port in ports)
        own = ", ".join(f'"{device}"' for device in ("lo", *inside))
        known = f"iifname {{ {own} }} accept; ct state established accept; "
        self._rules(known, known.replace("iifname", "oifname") + let)

    def silence(self) -> None:
        """From now on every packet of the wire is lost, and nobody is told: connections are half open."""
        self._rules("iif lo accept; ", "oif lo accept; ")

    def _rules(self, inward: str, outward: str) -> None:
        chains = "".join(
            f"chain {hook} {{ type filter hook {hook} priority 0; policy drop; {rules} }}\n"
            for hook, rules in (("input", inward), ("output", outward))
        )
        run(*self.prefix, "nft", "-f", "-", stdin=f"flush ruleset\ntable inet filter {{\n{chains}}}\n")


class HttpProxy(Program):
    """tinyproxy, which asks for a user and a password."""

    def __init__(self, directory: Path, address: str, user: str, password: str) -> None:
        program = shutil.which("tinyproxy") or shutil.which("tinyproxy", path="/usr/sbin:/usr/bin")
        if program is None:
            need.absent("tinyproxy is not installed")
        super().__init__("tinyproxy", directory)
        self._program = program
        self.address = address
        self.port = free_port()
        self.url = f"http://{user}:{password}@{address}:{self.port}"
        self._config = directory / "tinyproxy.conf"
        self._config.write_text(
            f'Port {self.port}\nListen {address}\nTimeout 600\nMaxClients 100\nLogLevel Connect\nLogFile "{self.log}"\n'
            f"BasicAuth {user} {password}\n"
        )

    def command(self) -> list[str]:
        return [self._program, "-d", "-c", str(self._config)]

    def start(self) -> None:
        super().start()
        eventually(lambda: not self.alive or self._listens(), 90, self.told())
        assert self.alive, self.told()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.address, self.port)) == 0
