"""Gzip in pieces is gzip: whatever the size, an ordinary reader gets back what was sent."""

from __future__ import annotations

import gzip
import random

import pytest

from remuda.apiserver.http import responses

PIECE = 512 * 1024


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 17])
async def test_pieces_unpack_to_what_was_sent(size: int) -> None:
    data = random.Random(size).randbytes(size // 4 + 1).hex().encode()[:size]
    pieces = [piece async for piece in responses.gzip_pieces(data)]
    assert gzip.decompress(b"".join(pieces)) == data


async def test_pieces_lose_little_against_one_stream() -> None:
    words = random.Random(1).choices(["kind", "metadata", "labels", "spec", "replicas", "template", "containers"], k=400_000)
    data = " ".join(words).encode()
    pieces = [piece async for piece in responses.gzip_pieces(data)]
    assert len(b"".join(pieces)) < 1.02 * len(responses.gzip(data))
