"""The server looks into buckets beside the pass that asks, so that a slow or silent service holds up nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from remuda.kube.clock import VirtualClock
from remuda.kube.objects import Key
from remuda.provisioning.etcd.bucket_looks import BucketLooks, Wanted, found
from remuda.provisioning.etcd.s3.answers import Object, S3Error, Why
from remuda.provisioning.etcd.s3.copies import Copy, Folder
from remuda.provisioning.etcd.s3.place import Place
from remuda.provisioning.etcd.s3.signature import Keys

DEMO = Key("fleet-default", "demo")
WANTED = Wanted(Place("backups", folder="demo"), Keys("a", "b"), "snap", 5)


@dataclass
class Bucket:
    """One that answers after `seconds`, with an object of a size or a failure."""

    clock: VirtualClock
    seconds: float = 1.0
    size: int = 5
    failure: Exception | None = None
    heads: list[str] = field(default_factory=list)
    place: Place = WANTED.place

    @asynccontextmanager
    async def opened(self, place: Place, keys: Keys) -> AsyncIterator[Folder]:
        assert (place, keys) == (WANTED.place, WANTED.keys)
        yield self

    async def head(self, key: str) -> Object:
        self.heads.append(key)
        await self.clock.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        return Object(key, self.size, 1.0, "tag", {"remuda-cluster-id": "the-uid"})

    async def listed(self, prefix: str) -> list[Object]:
        raise NotImplementedError

    async def read(self, key: str, largest: int) -> bytes:
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        raise NotImplementedError


@dataclass
class Looking:
    clock: VirtualClock
    bucket: Bucket
    looks: BucketLooks[Copy]
    ended: list[Key]

    def of(self, request: str = "1", wanted: Wanted = WANTED) -> Copy | S3Error | None:
        return self.looks.of(DEMO, request, wanted)


@pytest.fixture
async def looking() -> AsyncIterator[Looking]:
    clock = VirtualClock()
    bucket, ended = Bucket(clock), list[Key]()
    looks = BucketLooks(clock, bucket.opened, ended.append, found)
    task = asyncio.create_task(looks.run())
    yield Looking(clock, bucket, looks, ended)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_answer_comes_later_and_holds_for_a_while(looking: Looking) -> None:
    assert looking.of() is None and looking.of() is None
    await looking.clock.advance(2)
    found = looking.of()
    assert isinstance(found, Copy) and found.cluster_id == "the-uid" and looking.ended == [DEMO]
    await looking.clock.advance(200)
    assert looking.of() is found and looking.bucket.heads == ["demo/snap"]
    await looking.clock.advance(200)
    assert looking.of() is found, "the old answer holds until there is a new one"
    await looking.clock.advance(2)
    assert len(looking.bucket.heads) == 2 and looking.ended == [DEMO, DEMO]


async def test_what_may_pass_is_looked_at_again_soon(looking: Looking) -> None:
    looking.bucket.failure = S3Error(Why.BUSY, "try again later")
    looking.of()
    await looking.clock.advance(2)
    assert str(looking.of()) == "try again later"
    looking.bucket.failure = None
    await looking.clock.advance(29)
    assert isinstance(looking.of(), S3Error)
    await looking.clock.advance(2)
    assert isinstance(looking.of(), Copy)


async def test_another_request_and_other_settings_are_looked_at_anew(looking: Looking) -> None:
    looking.of()
    await looking.clock.advance(2)
    assert looking.of() is not None
    assert looking.of("2") is None
    await looking.clock.advance(2)
    larger = Wanted(WANTED.place, WANTED.keys, "snap", 6)
    assert looking.of("2") is not None and looking.of("2", larger) is None
    await looking.clock.advance(2)
    found = looking.of("2", larger)
    assert isinstance(found, S3Error) and found.why is Why.CHANGED
    looking.looks.forget(DEMO)
    assert looking.of("2", larger) is None


async def test_the_answer_to_a_request_that_was_replaced_is_not_taken(looking: Looking) -> None:
    looking.of("1")
    looking.bucket.seconds, looking.bucket.size = 3.0, 9
    await looking.clock.advance(0.5)
    looking.of("2")
    await looking.clock.advance(1)
    assert looking.of("2") is None and looking.ended == []
    await looking.clock.advance(3)
    assert isinstance(looking.of("2"), S3Error) and looking.ended == [DEMO]


@pytest.mark.parametrize(("seconds", "failure"), [(10_000.0, None), (1.0, RuntimeError("a mistake of ours"))])
async def test_no_service_and_no_mistake_holds_up_the_others(looking: Looking, seconds: float, failure: Exception | None) -> None:
    looking.bucket.seconds, looking.bucket.failure = seconds, failure
    looking.of()
    await looking.clock.advance(5)
    looking.bucket.seconds, looking.bucket.failure = 1.0, None
    other = Key("fleet-default", "other")
    looking.looks.of(other, "1", WANTED)
    await looking.clock.advance(2)
    assert isinstance(looking.looks.of(other, "1", WANTED), Copy)
    await looking.clock.advance(60)
    found = looking.of()
    assert isinstance(found, S3Error) and found.why is Why.BUSY
    await looking.clock.advance(30)
    looking.of()
    await looking.clock.advance(2)
    assert isinstance(looking.of(), Copy)
