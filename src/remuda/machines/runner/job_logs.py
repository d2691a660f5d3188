"""The logs of local Jobs: a ConfigMap for each machine, kept for a while when the machine is gone, then deleted.

The machine's cluster owns it. `remuda machine logs` reads it; if Jobs are pods, the pods have the logs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from remuda.client.idempotent import find, make, remove
from remuda.client.interface import Client
from remuda.kube.clock import Clock, rfc3339, time_of
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, labels_of, name_of, namespace_of
from remuda.kube.owners import reference
from remuda.kube.redaction import HIDDEN, redacted
from remuda.provisioning.well_known import CLUSTER_NAME

from ..driver import ASIDE
from ..machineprovision.well_known import CAPI_MACHINE, CONFIG_MAPS, LOG, log_name

log = logging.getLogger(__name__)

Obj = dict[str, Any]

KEY = "log"
EXPIRES = "remuda.dev/expires"
KEPT_SECONDS = 7 * 86_400.0
SWEEP_SECONDS = 3600.0
_MANAGER = "job-runner"


async def kept_before(client: Client, infra: Obj) -> str:
    """The output of earlier processes for this machine."""
    found = await find(client, CONFIG_MAPS, log_name(name_of(infra)), namespace_of(infra))
    return str(((found or {}).get("data") or {}).get(KEY) or "") if LOG in labels_of(found or {}) else ""


async def keep(client: Client, infra: Obj, owner: Obj | None, output: Output, now: float) -> None:
    """Store the output so far. A log is no reason to fail: errors are only logged here."""
    name, namespace = log_name(name_of(infra)), namespace_of(infra)
    meta: Obj = {
        "name": name,
        "namespace": namespace,
        "labels": {LOG: "true", CAPI_MACHINE: labels_of(infra).get(CAPI_MACHINE) or ""},
        "annotations": {EXPIRES: rfc3339(now + KEPT_SECONDS)},
        "ownerReferences": [reference(owner if owner is not None else infra)],
    }
    if cluster := labels_of(infra).get(CLUSTER_NAME):
        meta["labels"][CLUSTER_NAME] = cluster
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {KEY: output.text()}}
    patch = {"metadata": {part: meta[part] for part in ("labels", "annotations")}, "data": wanted["data"]}
    try:
        # All times but the first it is there.
        try:
            await client.patch(CONFIG_MAPS, name, patch, namespace, field_manager=_MANAGER)
        except ApiError as error:
            if not error.is_not_found:
                raise
            await make(client, CONFIG_MAPS, wanted, _MANAGER)
    except ApiError as error:
        log.warning("the log of %s/%s can't be kept: %s", namespace, name_of(infra), error.message)


async def sweep(client: Client, clock: Clock) -> None:
    """Delete expired logs, now and every hour."""
    while True:
        try:
            await sweep_once(client, clock.time())
        except ApiError as error:
            log.warning("old logs can't be thrown away: %s", error.message)
        await clock.sleep(SWEEP_SECONDS)


async def sweep_once(client: Client, now: float) -> None:
    token = ""
    while True:
        page = await client.list(CONFIG_MAPS, labels=f"{LOG}=true", limit=500, continue_=token, metadata_only=True)
        for each in page["items"]:
            until = time_of(annotations_of(each).get(EXPIRES))
            if until is not None and until < now:
                await remove(client, CONFIG_MAPS, each)
        token = (page.get("metadata") or {}).get("continue") or ""
        if not token:
            return


# --- job output -----------------------------------------------------------------------------------------------------------
#
# The output of a Job's process: its last lines, without the secrets that it was given. Pure.
#
# Kept in a ConfigMap, since the process, and perhaps this server, may be gone when a user asks for it.

LARGEST = 64 << 10
_LONGEST_LINE = 4096
# Shorter ones are no secrets, and would be found everywhere.
_SHORTEST_SECRET = 6


class Output:
    """`secrets` are hidden wherever they occur, and so is all that looks like one. `before` is the output of earlier processes:
    it is kept with the rest, but not part of this one's (:meth:`last`). `aside` gets the lines that are for the server alone."""

    def __init__(self, secrets: Iterable[str] = (), before: str = "", aside: Callable[[str], None] = lambda line: None) -> None:
        parts = {part for secret in secrets for part in (secret, *secret.splitlines())}
        self._secrets = sorted((part for part in parts if len(part.strip()) >= _SHORTEST_SECRET), key=len, reverse=True)
        self._longest = len(self._secrets[0].encode()) if self._secrets else 0
        self._lines: deque[str] = deque()
        self._size = 0
        self._rest = b""
        self._aside = aside
        # Grows with every line, so that readers notice new output.
        self.count = 0
        for line in before.splitlines():
            self._keep(line)
        # How many of the lines that are there are of this process.
        self._own = 0

    def begin(self, title: str) -> None:
        """A line above the following output. It is not part of the process's output."""
        self._keep(title)
        self._own = 0

    def feed(self, said: bytes) -> None:
        *lines, self._rest = (self._rest + said).split(b"\n")
        if len(self._rest) > _LONGEST_LINE + self._longest:
            # Where it is cut, a secret may have begun: so much of it stays for the next look.
            hidden = self._without_secrets(self._rest.decode(errors="replace")).encode()
            lines.append(hidden[: len(hidden) - self._longest])
            self._rest = hidden[len(hidden) - self._longest :]
        for line in lines:
            self.line(line.decode(errors="replace"))

    def end(self) -> None:
        """The end of the output."""
        if self._rest:
            self.line(self._rest.decode(errors="replace"))
            self._rest = b""

    def line(self, text: str) -> None:
        # First hidden, then cut and cleaned: half a secret, or one without its tabs, would not be known again.
        hidden = self._without_secrets(text.rstrip())[:_LONGEST_LINE]
        clean = redacted("".join(each if each.isprintable() else " " for each in hidden))
        if text.startswith(ASIDE):
            self._aside(clean.strip())
            return
        self._keep(clean)
        self._own += 1

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def _keep(self, line: str) -> None:
        self.count += 1
        self._lines.append(line)
        self._size += len(line.encode()) + 1
        while self._size > LARGEST and self._lines:
            self._size -= len(self._lines.popleft().encode()) + 1

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def last(self, most: int) -> str:
        """The end of this process's output, in whole lines, of at most so many bytes; nothing of earlier output."""
        kept: deque[str] = deque()
        size = 0
        for line in islice(reversed(self._lines), self._own):
            size += len(line.encode()) + 1
            if size > most:
                break
            kept.appendleft(line)
        return "\n".join(kept)
