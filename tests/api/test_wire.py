"""The wire: forms of answers, compression, sizes, protobuf bodies, headers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from .builders import CMS, PODS, SECRETS, cm, pod
from .harness import OURS, REAL, Pair, difference
from .masks import masked

SIDES = (OURS, REAL)
VECTORS = Path(__file__).parents[1] / "unit" / "apiserver" / "scheme" / "protobuf_vectors.jsonl"


def accepting(form: str) -> dict[str, str]:
    return {"Accept": form}


def header(both: Any, name: str) -> None:
    assert both.ours.headers.get(name) == both.real.headers.get(name), name


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "*/*",
        "application/*",
        "",
        "application/json;charset=utf-8",
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        "text/plain, application/json",
        "application/json;q=0.1, application/yaml;q=0.9",
        "application/yaml;q=0.1, application/json;q=0.9",
        "application/json;pretty=1",
        "application/json;as=Table;g=meta.k8s.io;v=v9, application/json",
        "application/json;as=Nonsense;g=meta.k8s.io;v=v1, application/json",
    ],
)
def test_forms_of_an_answer(pair: Pair, accept: str) -> None:
    pair.post(CMS, cm("a", x="1"))
    header(pair.get(CMS + "/a", headers=accepting(accept), ignore=as_value), "content-type")


def as_value(body: Any) -> Any:
    return masked(yaml.safe_load(body)) if isinstance(body, str) else body


def test_yaml_answers(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1", y="yes", z="two\nlines\n"))
    for path in (CMS + "/a", CMS + "?fieldSelector=metadata.name=a", CMS + "/none"):
        header(pair.get(path, headers=accepting("application/yaml"), ignore=as_value), "content-type")


def test_yaml_answer_to_a_write(pair: Pair) -> None:
    header(pair.post(CMS, cm("a", x="1"), headers=accepting("application/yaml"), ignore=as_value), "content-type")


@pytest.mark.parametrize(
    "accept",
    [
        "text/plain",
        "application/xml",
        "image/png",
        "nonsense",
        "application/json;as=Table;g=meta.k8s.io;v=v9",
        "application/json;as=Table;g=example.com;v=v1",
        "application/json;as=Nonsense;g=meta.k8s.io;v=v1",
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "application/cbor",
    ],
)
def test_a_form_that_can_not_be_given(pair: Pair, accept: str) -> None:
    pair.post(CMS, cm("a"))
    pair.get(CMS + "/a", headers=accepting(accept))


@pytest.mark.parametrize("path", [CMS, "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version"])
def test_a_form_that_can_not_be_given_elsewhere(pair: Pair, path: str) -> None:
    pair.get(
        path, headers=accepting("image/png"), ignore=lambda body: body if "kind" in body and body["kind"] == "Status" else None
    )


def test_a_write_whose_answer_can_not_be_given_is_not_done(pair: Pair) -> None:
    assert pair.post(CMS, cm("a"), headers=accepting("image/png")).status == 406
    assert pair.get(CMS + "/a").status == 404


def test_large_answers_are_compressed_for_who_can_read_it(pair: Pair) -> None:
    pair.post(CMS, cm("big", x="x" * 200_000))
    both = pair.get(CMS + "/big", headers={"Accept-Encoding": "gzip"}, compare=False)
    header(both, "content-encoding")
    header(both, "vary")
    left, right = (masked(json.loads(gzip.decompress(both[side].raw))) for side in SIDES)
    assert left == right, difference(left, right, "gzip")


@pytest.mark.parametrize("encoding", ["", "identity", "deflate", "br", "gzip;q=0"])
def test_large_answers_are_plain_for_others(pair: Pair, encoding: str) -> None:
    pair.post(CMS, cm("big", x="x" * 200_000))
    both = pair.get(CMS + "/big", headers={"Accept-Encoding": encoding}, compare=False)
    if both.real.headers.get("content-encoding") is None:
        header(both, "content-encoding")


def test_small_answers_are_plain(pair: Pair) -> None:
    pair.post(CMS, cm("small", x="x"))
    header(pair.get(CMS + "/small", headers={"Accept-Encoding": "gzip"}), "content-encoding")


def test_a_body_that_is_too_large(pair: Pair) -> None:
    assert pair.post(CMS, b'{"x":"' + b"x" * (3 * 1024 * 1024 + 1) + b'"}').status == 413


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_a_body_that_is_too_large_for_other_verbs(pair: Pair, method: str) -> None:
    pair.post(CMS, cm("a"))
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    body = b'{"data":{"x":"' + b"x" * (3 * 1024 * 1024 + 1) + b'"}}'
    pair.send(method, CMS + "/a", body, content_type=content_type)


def test_a_body_that_says_it_is_compressed(pair: Pair) -> None:
    body = gzip.compress(json.dumps(cm("a")).encode(), mtime=0)
    both = pair.post(CMS, body, headers={"Content-Encoding": "gzip"}, compare=False)
    assert both.ours.status >= 400 and both.real.status >= 400


def test_headers_of_an_answer(pair: Pair) -> None:
    both = pair.post(CMS, cm("a"))
    for name in ("content-type", "cache-control"):
        header(both, name)
    both = pair.get(CMS + "/none")
    for name in ("content-type", "cache-control"):
        header(both, name)


def test_an_answer_ends_with_a_line_feed(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    for path in (CMS + "/a", CMS, CMS + "/none", "/version", "/api"):
        both = pair.get(path, compare=False)
        assert both.ours.raw[-1:] == both.real.raw[-1:], path


@pytest.mark.parametrize("agent", ["curl/8", "Wget/1", "Mozilla/5.0 (X11)", "kubectl/v1.36"])
def test_people_get_indented_answers(pair: Pair, agent: str) -> None:
    pair.post(CMS, cm("a"))
    for path in (CMS + "/a", CMS + "/none"):
        both = pair.get(path, headers={"User-Agent": agent})
        assert (b"\n  " in both.ours.raw) == (b"\n  " in both.real.raw)


def test_the_user_agent_names_the_manager(pair: Pair) -> None:
    for index, agent in enumerate(("kubectl/v1.36 (linux/amd64)", "a b/c", "", "x" * 200, "name", "näme/1")):
        pair.post(CMS, cm(f"c{index}", x="1"), headers={"User-Agent": agent.encode().decode("latin-1")})


# --- protobuf ------------------------------------------------------------------------------------------------------------------


def vectors() -> list[dict[str, Any]]:
    found = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    return [each for each in found if isinstance(each, dict)]


PROTOBUF = "application/vnd.kubernetes.protobuf"


def unknown(api_version: str, kind: str, raw: bytes) -> bytes:
    """The envelope: apiVersion and kind, then the object."""

    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2]) + varint(len(data)) + data

    type_meta = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\x00" + field(1, type_meta) + field(2, raw) + field(3, b"") + field(4, b"")


def varint(value: int) -> bytes:
    out = bytearray()
    while True:
        if value < 0x80:
            out.append(value)
            return bytes(out)
        out.append(value & 0x7F | 0x80)
        value >>= 7


def message(*fields: tuple[int, bytes]) -> bytes:
    return b"".join(bytes([number << 3 | 2]) + varint(len(data)) + data for number, data in fields)


def meta(name: str) -> bytes:
    return message((1, name.encode()))


def test_a_protobuf_body(pair: Pair) -> None:
    data = message((1, b"key"), (2, b"value"))
    body = unknown("v1", "ConfigMap", message((1, meta("a")), (2, data)))
    assert pair.post(CMS, body, content_type=PROTOBUF).status == 201


def test_a_protobuf_secret(pair: Pair) -> None:
    body = unknown("v1", "Secret", message((1, meta("s")), (2, message((1, b"k"), (2, b"\x00\xff"))), (3, b"Opaque")))
    assert pair.post(SECRETS, body, content_type=PROTOBUF).status == 201


def test_a_protobuf_update(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    body = unknown("v1", "ConfigMap", message((1, meta("a")), (2, message((1, b"x"), (2, b"2")))))
    pair.put(CMS + "/a", body, content_type=PROTOBUF)


def test_protobuf_delete_options(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    body = unknown("v1", "DeleteOptions", message((4, b"Background")))
    pair.delete(CMS + "/a", body, content_type=PROTOBUF)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"k8s\x00",
        b"k8s",
        b"{}",
        b"k8s\x00\xff\xff\xff",
        unknown("v1", "ConfigMap", b"\xff\xff"),
        unknown("v1", "Secret", message((1, meta("a")))),
        unknown("v1", "Nonsense", b""),
        unknown("", "", message((1, meta("a")))),
    ],
    ids=["empty", "magic-only", "short", "json", "garbage", "bad-object", "other-kind", "unknown-kind", "kindless"],
)
def test_a_bad_protobuf_body(pair: Pair, body: bytes) -> None:
    both = pair.post(CMS, body, content_type=PROTOBUF, compare=False)
    assert both.ours.status == both.real.status


# --- other shapes of one object ------------------------------------------------------------------------------------------


def test_metadata_of_one_object(pair: Pair) -> None:
    pair.post(PODS, pod("p"))
    for version in ("v1", "v1beta1"):
        form = f"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v={version}"
        header(pair.get(PODS + "/p", headers=accepting(form)), "content-type")


def test_metadata_of_a_list(pair: Pair) -> None:
    pair.post(PODS, pod("p"))
    for form in ("PartialObjectMetadataList", "PartialObjectMetadata"):
        pair.get(PODS, headers=accepting(f"application/json;as={form};g=meta.k8s.io;v=v1"))


def test_metadata_as_the_answer_to_a_write(pair: Pair) -> None:
    form = accepting("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
    pair.post(CMS, cm("a"), headers=form)
    pair.put(CMS + "/a", cm("a", x="1"), headers=form)
    pair.patch(CMS + "/a", {"data": {"x": "2"}}, headers=form)
    pair.delete(CMS + "/a", headers=form)


def test_metadata_as_yaml(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    form = "application/yaml;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    pair.get(CMS + "/a", headers=accepting(form), ignore=as_value)


def test_errors_come_plain_in_other_shapes(pair: Pair) -> None:
    for form in ("Table", "PartialObjectMetadata"):
        header(pair.get(CMS + "/none", headers=accepting(f"application/json;as={form};g=meta.k8s.io;v=v1")), "content-type")


@pytest.mark.xfail(strict=True, reason="protobuf is read, never written")
def test_a_protobuf_answer(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    both = pair.get(CMS + "/a", headers=accepting(PROTOBUF), compare=False)
    assert both.ours.status == both.real.status


@pytest.mark.xfail(strict=True, reason="the HTTP parser knows no other methods, and says so itself")
def test_an_unheard_of_method(pair: Pair) -> None:
    pair.send("FOO", CMS)
