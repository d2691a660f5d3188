"""The messages that wait for a client: in order, and not too many."""

from __future__ import annotations

import asyncio

from remuda.gateway.rancher.live.outbox import Outbox


async def test_messages_are_sent_in_order() -> None:
    outbox, sent = Outbox(), list[str]()
    done = asyncio.Event()

    async def write(text: str) -> None:
        sent.append(text)
        if text == "last":
            done.set()

    assert outbox.offer("first") and outbox.offer("second")
    sending = asyncio.create_task(outbox.send(write))
    outbox.put("last")
    await done.wait()
    sending.cancel()
    assert sent == ["first", "second", "last"]


async def test_a_message_that_does_not_fit_is_refused_and_a_large_one_waits_alone() -> None:
    outbox = Outbox(largest=10)
    assert outbox.offer("x" * 50)
    assert not outbox.offer("y")
    outbox.put("the end")
    assert len(outbox) == 2


async def test_a_writer_waits_until_half_of_the_room_is_free() -> None:
    outbox = Outbox(largest=10)
    taken: list[str] = []

    async def write(text: str) -> None:
        taken.append(text)

    await outbox.room()
    for _ in range(3):
        outbox.offer("xxx")
    waiting = asyncio.create_task(outbox.room())
    sending = asyncio.create_task(outbox.send(write))
    await waiting
    sending.cancel()
    assert taken and outbox.offer("xxx")


async def test_answers_that_no_one_reads_are_a_flood() -> None:
    outbox = Outbox(largest=10)
    outbox.put("x" * 50)
    assert not outbox.is_flooded
    outbox.put("y")
    assert outbox.is_flooded
