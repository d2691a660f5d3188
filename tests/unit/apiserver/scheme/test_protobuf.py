"""Protobuf bodies of built-in kinds become the objects that JSON would have brought, and hostile ones one clear error."""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.scheme import protobuf
from remuda.apiserver.scheme.protobuf import MAX_DEPTH, MAX_VALUES, ProtobufError, decode

VECTORS = {
    vector["name"]: vector
    for vector in map(json.loads, Path(__file__).with_name("protobuf_vectors.jsonl").read_text().splitlines())
}

CRD = "apiextensions.k8s.io/v1"


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    return message(field, value.encode())


def body(api_version: str, kind: str, *parts: bytes) -> bytes:
    return protobuf.MAGIC + message(1, text(1, api_version), text(2, kind)) + message(2, *parts)


def crd_with_schema(*schema: bytes) -> bytes:
    """A CRD with one version whose schema has these fields."""
    version = message(7, text(1, "v1"), message(4, message(1, *schema)))
    return body(CRD, "CustomResourceDefinition", message(2, version))


def schema_of(crd: dict[str, Any]) -> Any:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize("name", VECTORS)
def test_objects_that_go_wrote(name: str) -> None:
    vector = VECTORS[name]
    assert decode(base64.b64decode(vector["protobuf"])) == vector["json"]


def test_envelope_tells_what_is_inside() -> None:
    envelope = protobuf.read_envelope(body("apps/v1", "Deployment", b"\x0a\x00"))
    assert (envelope.api_version, envelope.kind, envelope.raw) == ("apps/v1", "Deployment", b"\x0a\x00")


def test_a_body_without_kind_takes_that_of_the_request() -> None:
    data = protobuf.MAGIC + message(2, message(1, text(1, "x")))
    assert decode(data, default=("v1", "Namespace"))["metadata"] == {"name": "x"}
    with pytest.raises(ProtobufError, match="Kind"):
        decode(data)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "empty data"),
        (b'{"kind":"Pod"}', "expected prefix [107 56 115 0]"),
        (b"k8s\x00", "empty body"),
        (body("v1", "Nothing"), 'no kind "Nothing" is registered for version "v1"'),
        (body("v1", "Pod", b"\x0a\x05a"), "unexpected EOF"),
        (body("v1", "Pod", b"\x0a" + b"\xff" * 10), "proto: integer overflow"),
        (body("v1", "Pod", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "proto: negative length found"),
        (body("v1", "Pod", b"\x02\x00"), "proto: Pod: illegal tag 0 (wire type 2)"),
        (body("v1", "Pod", b"\x0c"), "proto: Pod: wiretype end group for non-group"),
        (body("v1", "Pod", number(1, 1)), "proto: wrong wireType = 0 for field metadata"),
        (body("v1", "Namespace", message(1, message(1, b"\xff"))), "field name is not valid UTF-8"),
        (crd_with_schema(message(8, message(1, b"{"))), "embedded JSON"),
        (crd_with_schema(message(8, message(1, b"[" * 5000))), "embedded JSON nests too deep"),
        (crd_with_schema(varint(9 << 3 | 1) + b"\0\0\0\0\0\0\xf0\x7f"), "json: unsupported value: inf"),
    ],
)
def test_what_is_no_object_is_refused_with_a_reason(data: bytes, error: str) -> None:
    with pytest.raises(ProtobufError) as caught:
        decode(data)
    assert error in str(caught.value)


def test_unknown_fields_are_skipped_whatever_their_form() -> None:
    unknown = b"".join(
        (
            number(900, 7),
            text(901, "x"),
            varint(902 << 3 | 1) + b"12345678",
            varint(903 << 3 | 5) + b"1234",
            varint(904 << 3 | 3) + number(1, 1) + varint(5 << 3 | 3) + varint(5 << 3 | 4) + varint(904 << 3 | 4),
        )
    )
    data = body("v1", "Namespace", unknown, message(1, unknown, text(1, "x")))
    assert decode(data) == {
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": {"name": "x"},
        "spec": {},
        "status": {},
    }


def test_a_message_that_comes_twice_is_merged_and_a_scalar_replaced() -> None:
    data = body("v1", "Namespace", message(1, text(1, "a"), text(5, "uid")), message(1, text(1, "b")))
    assert decode(data)["metadata"] == {"name": "b", "uid": "uid"}


def test_packed_and_single_numbers_are_both_read() -> None:
    # PodSpec.securityContext.supplementalGroups
    groups = message(14, number(4, 1), message(4, varint(2) + varint(3)))
    data = body("v1", "Pod", message(2, groups))
    assert decode(data)["spec"]["securityContext"]["supplementalGroups"] == [1, 2, 3]


def test_negative_numbers_come_back_negative() -> None:
    assert decode(body("apps/v1", "Deployment", message(2, number(1, -5))))["spec"]["replicas"] == -5


def test_times_outside_the_calendar_are_refused_and_zero_is_null() -> None:
    def lease(seconds: int, nanos: int = 0) -> bytes:
        moment = message(3, number(1, seconds), number(2, nanos))
        return body("coordination.k8s.io/v1", "Lease", message(2, moment))

    assert decode(lease(0, 5000))["spec"]["acquireTime"] == "1970-01-01T00:00:00.000005Z"
    assert decode(lease(-62135596800))["spec"]["acquireTime"] is None
    with pytest.raises(ProtobufError, match="years 1 to 9999"):
        decode(lease(1 << 50))
    with pytest.raises(ProtobufError, match="years 1 to 9999"):
        decode(lease(-(1 << 62)))


def test_schemas_of_schemas_take_the_form_that_json_has() -> None:
    items = message(24, message(1, text(5, "string")))
    required = text(23, "a")
    anything = message(30, number(1, 1))
    flags = number(12, 0)
    properties = message(29, text(1, "spec"), message(2, text(5, "array"), items))
    found = schema_of(decode(crd_with_schema(text(5, "object"), required, properties, anything, flags)))
    assert found == {
        "type": "object",
        "required": ["a"],
        "properties": {"spec": {"type": "array", "items": {"type": "string"}}},
        "additionalProperties": True,
    }


def test_whole_floats_are_whole_numbers() -> None:
    maximum = varint(9 << 3 | 1) + b"\0\0\0\0\0\0\x14\x40"
    found = schema_of(decode(crd_with_schema(maximum)))["maximum"]
    assert (found, type(found)) == (5, int)


def test_an_object_inside_an_object_may_be_protobuf_too() -> None:
    inner = body("v1", "ConfigMap", message(1, text(1, "inner")))
    data = body("apps/v1", "ControllerRevision", message(2, message(1, inner)))
    assert decode(data)["data"] == {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "inner"}}


def test_depth_is_bounded() -> None:
    def nested(levels: int) -> bytes:
        schema = text(5, "object")
        for _ in range(levels):
            schema = message(29, text(1, "x"), message(2, schema))
        return crd_with_schema(schema)

    assert schema_of(decode(nested(MAX_DEPTH - 10)))
    with pytest.raises(ProtobufError, match="deeper"):
        decode(nested(MAX_DEPTH + 1))


def test_objects_inside_objects_are_bounded() -> None:
    data = b"{}"
    for _ in range(MAX_DEPTH + 1):
        data = body("apps/v1", "ControllerRevision", message(2, message(1, data)))
    with pytest.raises(ProtobufError):
        decode(data)


def test_the_number_of_values_is_bounded() -> None:
    containers = message(2, b"") * (MAX_VALUES + 1)
    with pytest.raises(ProtobufError, match="values"):
        decode(body("v1", "Pod", message(2, containers)))


def test_the_size_is_bounded() -> None:
    with pytest.raises(ProtobufError, match="larger than"):
        decode(body("v1", "Secret", b"\0" * protobuf.MAX_BYTES))


KINDS = [("v1", "Pod"), ("v1", "Secret"), ("apps/v1", "Deployment"), (CRD, "CustomResourceDefinition")]


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_the_one_error(data: bytes) -> None:
    for candidate in (data, protobuf.MAGIC + data):
        with contextlib.suppress(ProtobufError):
            decode(candidate)


@given(st.sampled_from(KINDS), st.binary(max_size=200))
def test_random_objects_raise_nothing_but_the_one_error(kind: tuple[str, str], data: bytes) -> None:
    try:
        found = decode(body(*kind, data))
    except ProtobufError:
        return
    json.dumps(found, allow_nan=False)


@settings(max_examples=300)
@given(st.sampled_from(sorted(VECTORS)), st.data())
def test_damaged_objects_raise_nothing_but_the_one_error(name: str, data: st.DataObject) -> None:
    damaged = bytearray(base64.b64decode(VECTORS[name]["protobuf"]))
    for _ in range(data.draw(st.integers(1, 5))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for candidate in (bytes(damaged), cut):
        with contextlib.suppress(ProtobufError):
            decode(candidate)
