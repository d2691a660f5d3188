"""What was acknowledged is there: random writes to an API on sqlite that is stopped, or lost, in between; and a model beside it.

A server that is lost is one whose files are copied as they are, without a word to it, and opened elsewhere: what a machine
finds after its power came back.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.client.interface import JSON_PATCH
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource

from .budget import fuzzing

Obj = dict[str, Any]
MAPS = GroupVersionResource("", "v1", "configmaps")
SECRETS = GroupVersionResource("", "v1", "secrets")
NAMES = ["a", "b", "c", "d"]

texts = st.text(alphabet="xyé\n\x00", max_size=5)
data = st.dictionaries(st.sampled_from(["k", "l"]), texts, max_size=2)
write = st.tuples(
    st.sampled_from(["create", "update", "stale", "merge", "json", "apply", "delete", "label", "finalize", "dry"]),
    st.sampled_from([MAPS, SECRETS]),
    st.sampled_from(NAMES),
    data,
)
# One object each: what several do to one at the same time is another test's.
batch = st.lists(write, min_size=1, max_size=4, unique_by=lambda each: each[1:3])
steps = st.lists(st.one_of(batch, batch, batch, st.sampled_from(["restart", "lose"])), max_size=10)


class Told:
    """The API, the directory it is in, and what it has acknowledged."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = 0
        self.known: dict[tuple[GroupVersionResource, str], Obj] = {}
        self.revision = 0

    async def open(self) -> None:
        self.server = await Server.open(Config(self.directory / str(self.count), port=0, default_roles=False))
        self.client = InProcessClient(self.server)

    async def restart(self) -> None:
        await self.server.close()
        await self.open()

    async def lose(self) -> None:
        before = self.directory / str(self.count)
        self.count += 1
        shutil.copytree(before, self.directory / str(self.count), ignore=shutil.ignore_patterns("*.lock"))
        await self.server.close()
        await self.open()

    # --- writes ---------------------------------------------------------------------------------------------------------

    async def write(self, verb: str, kind: GroupVersionResource, name: str, values: dict[str, str]) -> None:
        key = (kind, name)
        before = self.known.get(key)
        try:
            found = await self._send(verb, kind, name, values, before)
        except ApiError as error:
            assert error.code in (404, 409, 422), error
            assert error.code != 404 or before is None
            return
        if verb == "dry":
            return
        if verb == "delete":
            assert before is not None
            if not before["metadata"].get("finalizers"):
                del self.known[key]
                return
            found = await self.client.get(kind, name, namespace="default")
            assert found["metadata"]["deletionTimestamp"]
        meta = found["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            self.known.pop(key, None)
            return
        assert before is None or before["metadata"]["uid"] == meta["uid"] or verb in ("create", "apply")
        self.known[key] = found

    async def _send(self, verb: str, kind: GroupVersionResource, name: str, values: dict[str, str], before: Obj | None) -> Obj:
        client, where = self.client, {"namespace": "default"}
        word = "Secret" if kind is SECRETS else "ConfigMap"
        content: Obj = {"stringData" if kind is SECRETS else "data": values}
        made = {"apiVersion": "v1", "kind": word, "metadata": {"name": name, **where}, **content}
        if verb == "create":
            return await client.create(kind, made)
        if verb == "dry":
            return await client.create(kind, {**made, "metadata": {"generateName": "dry-", **where}}, dry_run=True)
        if verb == "update" or verb == "stale":
            meta = dict((before or made)["metadata"])
            if verb == "stale":
                meta["resourceVersion"] = "1"
            return await client.update(kind, {**made, "metadata": meta})
        if verb == "delete":
            return await client.delete(kind, name, **where) or {}
        if verb == "apply":
            return await client.apply(kind, made, field_manager="fuzz", force=True)
        if verb == "json":
            change: Any = [{"op": "add", "path": "/metadata/annotations", "value": {"a": str(len(values))}}]
            return await client.patch(kind, name, change, patch_type=JSON_PATCH, **where)
        change = {"merge": content, "label": {"metadata": {"labels": {"l": "x" * len(values)}}}}.get(verb)
        if change is None:
            change = {"metadata": {"finalizers": ["example.com/x"] if values else None}}
        return await client.patch(kind, name, change, **where)

    # --- what is there ----------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        for kind in (MAPS, SECRETS):
            listed = await self.client.list(kind, namespace="default")
            there = {obj["metadata"]["name"]: obj for obj in listed["items"]}
            expected = {name: obj for (held, name), obj in self.known.items() if held is kind}
            for name in {*there, *expected} & set(NAMES):
                assert bare(there.get(name)) == bare(expected.get(name)), name
            revision = int(listed["metadata"]["resourceVersion"])
            assert revision >= self.revision, "revisions only rise"
            self.revision = revision


def bare(obj: Obj | None) -> Obj | None:
    return obj and {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as found:
        yield found


@fuzzing(12)
@given(steps)
def test_nothing_that_was_acknowledged_is_lost(runner: asyncio.Runner, story: list[Any]) -> None:
    async def play(directory: Path) -> None:
        told = Told(directory)
        await told.open()
        try:
            for step in [*story, "lose"]:
                if step == "restart":
                    await told.restart()
                elif step == "lose":
                    await told.lose()
                else:
                    await asyncio.gather(*(told.write(*each) for each in step))
                await told.check()
        finally:
            await told.server.close()

    with tempfile.TemporaryDirectory(prefix="remuda-fuzz-") as directory:
        runner.run(play(Path(directory)))
