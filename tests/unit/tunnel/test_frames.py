"""Messages as bytes: the worked examples of the protocol, laws that hold for all, and bytes that nobody meant well."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.tunnel import frames
from remuda.tunnel.errors import FrameError
from remuda.tunnel.frames import Kind, decode, encode, read_varint, varint

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(
    ("number", "raw"),
    [
        (0, "00"),
        (1, "02"),
        (2, "04"),
        (3, "06"),
        (8, "10"),
        (99, "c601"),
        (15000, "b0ea01"),
        (-1, "01"),
        (-64, "7f"),
        (64, "8001"),
    ],
)
def test_varints_of_the_protocol(number: int, raw: str) -> None:
    assert varint(number).hex() == raw
    assert read_varint(memoryview(bytes.fromhex(raw)), 0) == (number, len(raw) // 2)


GOLDEN = [
    (
        encode(7, 2, Kind.CONNECT, frames.connect_body("tcp", "127.0.0.1:18125")),
        "0e0404b0ea017463702f3132372e302e302e313a3138313235",
    ),
    (encode(8, 2, Kind.DATA, b"GET / HTTP/1.1\r\n"), "100402b0ea01474554202f20485454502f312e310d0a"),
    (encode(9, 2, Kind.ERROR, frames.error_body("EOF")), "120406454f46"),
    (encode(10, 2, Kind.PAUSE), "14040c"),
    (encode(11, 2, Kind.RESUME), "16040e"),
    (encode(12, 0, Kind.SYNC_CONNECTIONS, frames.sync_body([])), "180010"),
    (encode(13, 0, Kind.SYNC_CONNECTIONS, frames.sync_body([3, 2])), "1a001002000000000000000300000000000000"),
    (encode(14, 0, Kind.ADD_CLIENT, b"c-abc/7"), "1c0008632d6162632f37"),
    (encode(15, 0, Kind.REMOVE_CLIENT, b"c-abc/7"), "1e000a632d6162632f37"),
]


@pytest.mark.parametrize(("made", "golden"), GOLDEN)
def test_messages_of_the_protocol(made: bytes, golden: str) -> None:
    assert made.hex() == golden


def test_a_message_that_go_wrote() -> None:
    found = decode(bytes.fromhex("c2cf8eeeb8bc8bf110" + "04" + "02" + "b0ea01") + b"payload")
    assert (found.stream, found.kind, bytes(found.body)) == (2, Kind.DATA, b"payload")
    assert varint(found.id).hex() == "c2cf8eeeb8bc8bf110"


def test_ids_wrap_as_in_go() -> None:
    assert decode(encode((1 << 63) - 1, 1, Kind.PAUSE)).id == (1 << 63) - 1
    assert decode(encode(1 << 63, 1, Kind.PAUSE)).id == -(1 << 63)


@given(INT64)
def test_varint_round_trip(number: int) -> None:
    raw = varint(number)
    assert read_varint(memoryview(raw), 0) == (number, len(raw))
    assert len(raw) <= 10


@given(INT64, INT64, st.sampled_from(Kind), st.binary(max_size=300))
def test_message_round_trip(number: int, stream: int, kind: Kind, body: bytes) -> None:
    found = decode(encode(number, stream, kind, body))
    assert (found.id, found.stream, found.kind, bytes(found.body)) == (number, stream, kind, body)


@given(st.lists(INT64, unique=True))
def test_sync_round_trip(streams: list[int]) -> None:
    assert frames.read_sync(memoryview(frames.sync_body(streams))) == frozenset(streams)


@given(st.binary(max_size=64))
def test_any_bytes_are_a_message_or_refused(raw: bytes) -> None:
    readers = (frames.read_connect, frames.read_error, frames.read_client, frames.read_sync)
    try:
        found = decode(raw)
    except FrameError:
        return
    for read in readers:
        try:
            read(found.body)
        except FrameError:
            continue


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "ends within"),
        (b"\x80", "ends within"),
        (b"\x02\x04", "ends within"),
        (b"\x02\x04\x02", "ends within"),
        (b"\xff" * 10, "more than 64"),
        (b"\xff" * 9 + b"\x02", "more than 64"),
    ],
)
def test_what_is_no_message(raw: bytes, said: str) -> None:
    with pytest.raises(FrameError, match=said):
        decode(raw)


def test_the_largest_number_still_fits() -> None:
    assert read_varint(memoryview(b"\xff" * 9 + b"\x01"), 0) == (-(1 << 63), 10)


@given(st.text(max_size=300))
def test_an_error_text_is_cut_between_characters(text: str) -> None:
    body = frames.error_body(text)
    assert len(body) <= frames.LONGEST_ERROR
    assert body.decode() == frames.read_error(memoryview(body))


def test_addresses_are_split_at_the_first_slash() -> None:
    assert frames.read_connect(memoryview(b"unix//var/run/x.sock")) == ("unix", "/var/run/x.sock")
    with pytest.raises(FrameError, match="failed to parse connect address"):
        frames.read_connect(memoryview(b"tcp"))


def test_an_address_that_would_be_cut_is_not_sent() -> None:
    assert len(frames.connect_body("tcp", "a" * 262)) == 266
    with pytest.raises(ValueError, match="longer than"):
        frames.connect_body("tcp", "a" * 263)
    with pytest.raises(ValueError, match="slash"):
        frames.connect_body("tcp/x", "a:1")


@pytest.mark.parametrize("body", [b"", b"key", b"key/", b"key/x", b"key/-", "key/²".encode()])
def test_what_announces_no_client(body: bytes) -> None:
    with pytest.raises(FrameError, match="invalid remote Session"):
        frames.read_client(memoryview(body))


def test_an_announced_client() -> None:
    assert frames.read_client(memoryview(b"c-abc/-7")) == ("c-abc", -7)


def test_a_list_of_streams_with_half_an_id() -> None:
    with pytest.raises(FrameError, match="incorrect data format"):
        frames.read_sync(memoryview(b"\0" * 12))
