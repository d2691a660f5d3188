"""Two replicas of `remuda controllers` on a real kube-apiserver, whose leader somebody keeps killing."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from remuda.app.attached import LEASE
from remuda.client.interface import Send, WrappedClient
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.kube.errors import ApiError
from tests.real.ports import free_ports


class Replica:
    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self.webhooks, self.metrics, self.health = free_ports(3)
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "remuda", "controllers", "--kubeconfig", str(kubeconfig)),
                    *("--webhook-host", "127.0.0.1", "--webhook-port", str(self.webhooks)),
                    *("--webhook-url", f"https://127.0.0.1:{self.webhooks}"),
                    *("--metrics-bind-address", f"127.0.0.1:{self.metrics}"),
                    *("--health-probe-bind-address", f"127.0.0.1:{self.health}"),
                    # Short, so that a new leader comes soon after a kill; not so short that a busy machine takes the lease away.
                    *("--leader-elect-lease-duration", "10s", "--leader-elect-renew-deadline", "8s"),
                    *("--leader-elect-retry-period", "500ms"),
                    # The workload clusters are on this machine.
                    *("--outbound-policy", "allow:127.0.0.0/8"),
                ],
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def page(self, port: int, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    async def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        return (await asyncio.to_thread(self.page, self.health, "/readyz"))[0] == 200

    async def leading(self) -> bool:
        return _leads(await self._metrics())

    async def working(self) -> bool:
        """It leads, and has got as far as doing something."""
        text = await self._metrics()
        return _leads(text) and any(_values(text, "controller_runtime_reconcile_total"))

    async def looked_at_all(self) -> bool:
        """It leads, and nothing waits for its turn."""
        text = await self._metrics()
        return _leads(text) and not any(_values(text, "workqueue_depth"))

    async def _metrics(self) -> str:
        return (await asyncio.to_thread(self.page, self.metrics, "/metrics"))[1]

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self.process.wait)


def _leads(metrics: str) -> bool:
    return f'leader_election_master_status{{name="{LEASE}"}} 1' in metrics


def _values(metrics: str, name: str) -> list[float]:
    return [float(line.rpartition(" ")[2]) for line in metrics.splitlines() if line.startswith(name)]


class Replicas:
    """Always two: a leader and one that waits. Those that are killed are started again."""

    def __init__(self, kubeconfig: Path, directory: Path, count: int = 2) -> None:
        self._kubeconfig = kubeconfig
        self._directory = directory
        self._count = count
        self._made = 0
        self.running: list[Replica] = []
        self.kills = 0

    async def start(self) -> None:
        while len(self.running) < self._count:
            self._made += 1
            self.running.append(Replica(self._kubeconfig, self._directory / f"replica-{self._made}.log"))
        await self._until(self._all_ready)

    async def _all_ready(self) -> bool:
        return all([await replica.ready() for replica in self.running])

    async def kill_leaders(self, rng: Rng, between: tuple[float, float]) -> None:
        """Until cancelled: let a leader work for a random while, kill whoever leads, and start another.

        A while that began before somebody works would let nobody ever get anything done where starting takes longer than that.
        And every other leader looks at everything first: all begin with the same ones, and the last ones must have a turn, too.
        """
        while True:
            await self._until(self._somebody_works)
            if self.kills % 2:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(60):
                        await self._until(self._somebody_looked_at_all)
            await SYSTEM_CLOCK.sleep(rng.uniform(*between))
            for replica in list(self.running):
                if await replica.leading():
                    await replica.kill()
                    self.running.remove(replica)
                    self.kills += 1
                    break
            await self.start()

    async def _somebody_works(self) -> bool:
        return any([await replica.working() for replica in self.running])

    async def _somebody_looked_at_all(self) -> bool:
        return any([await replica.looked_at_all() for replica in self.running])

    @staticmethod
    async def _until(check: Callable[[], Awaitable[bool]], seconds: float = 300) -> None:
        end = SYSTEM_CLOCK.monotonic() + seconds
        while not await check():
            assert SYSTEM_CLOCK.monotonic() < end, "the replicas did not come up"
            await SYSTEM_CLOCK.sleep(0.1)

    async def stop(self) -> None:
        for replica in self.running:
            await replica.kill()

    def logs(self) -> str:
        return "".join(path.read_text() for path in sorted(self._directory.glob("replica-*.log")))


class Patient(WrappedClient):
    """A user who tries again while nobody answers the webhooks, as `kubectl apply` in a loop would."""

    async def _call(self, send: Send, *, write: bool) -> Any:
        end = SYSTEM_CLOCK.monotonic() + 300
        while True:
            try:
                return await send()
            except ApiError as error:
                # Nobody answers the webhooks; or the server sets a kind up anew, since they moved.
                passing = error.code in (429, 503) or (error.code == 500 and "webhook" in error.message)
                if not passing or SYSTEM_CLOCK.monotonic() > end:
                    raise
            await SYSTEM_CLOCK.sleep(0.3)
