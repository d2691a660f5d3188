"""`/v2/` as the OCI distribution protocol has it, read-only: a small image on disk, through the door."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.images import Image, Layout, Tree, layer_of
from tests.integration.gateway.running_gateway import Standing, standing

NAME = "remuda/cluster-agent"


def image() -> Image:
    tree = Tree()
    tree.file("etc/hello", "hello")
    tree.file("bulk", hashlib.shake_256(b"seed").digest(300_000))
    return Image("amd64", [layer_of(tree, "a layer")], {"Entrypoint": ["/hello"]})


class Pulling:
    """What a client does."""

    def __init__(self, place: Standing) -> None:
        self.place = place

    async def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, Any, bytes]:
        answer = await self.place.get(path, method=method, headers=headers)
        return answer.status, answer.headers, await answer.read()


@pytest.fixture
async def pulling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pulling]:
    Layout(tmp_path / "images" / NAME).write(image(), ("0.1.0", "latest"))
    monkeypatch.setenv("REMUDA_IMAGES", str(tmp_path / "images"))
    async with standing() as place:
        yield Pulling(place)


async def test_the_protocol_is_spoken_here(pulling: Pulling) -> None:
    for path in ("/v2/", "/v2"):
        status, headers, body = await pulling.ask(path)
        assert (status, body) == (200, b"{}")
        assert headers["Docker-Distribution-API-Version"] == "registry/2.0"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_manifest_by_tag_and_by_digest(pulling: Pulling, method: str) -> None:
    manifest = image().manifest()
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    for reference in ("latest", "0.1.0", digest):
        status, headers, body = await pulling.ask(f"/v2/{NAME}/manifests/{reference}", method)
        assert status == 200
        assert body == (manifest if method == "GET" else b"")
        assert headers["Content-Length"] == str(len(manifest))
        assert headers["Content-Type"] == "application/vnd.oci.image.manifest.v1+json"
        assert headers["Docker-Content-Digest"] == digest
        assert ("immutable" in headers.get("Cache-Control", "")) == (reference == digest)


async def test_blobs_whole_and_in_parts(pulling: Pulling) -> None:
    layer = image().layers[0]
    where = f"/v2/{NAME}/blobs/{layer.digest}"
    status, headers, body = await pulling.ask(where)
    assert (status, body) == (200, layer.content)
    assert headers["Docker-Content-Digest"] == layer.digest
    assert headers["Content-Type"] == "application/octet-stream"
    status, headers, body = await pulling.ask(where, "HEAD")
    assert (status, body, headers["Content-Length"]) == (200, b"", str(len(layer.content)))
    status, headers, body = await pulling.ask(where, Range="bytes=100-199")
    assert (status, body) == (206, layer.content[100:200])
    assert headers["Content-Range"] == f"bytes 100-199/{len(layer.content)}"
    status, _, body = await pulling.ask(where, Range=f"bytes={len(layer.content) - 7}-")
    assert (status, body) == (206, layer.content[-7:])
    assert (await pulling.ask(where, Range=f"bytes={len(layer.content)}-"))[0] == 416
    config = f"sha256:{hashlib.sha256(image().config()).hexdigest()}"
    assert (await pulling.ask(f"/v2/{NAME}/blobs/{config}"))[2] == image().config()


async def test_tags_in_pages(pulling: Pulling) -> None:
    status, _, body = await pulling.ask(f"/v2/{NAME}/tags/list")
    assert (status, body) == (200, b'{"name":"remuda/cluster-agent","tags":["0.1.0","latest"]}')
    status, headers, body = await pulling.ask(f"/v2/{NAME}/tags/list?n=1")
    assert b'["0.1.0"]' in body
    following = headers["Link"].partition(">")[0].removeprefix("<")
    status, headers, body = await pulling.ask(following)
    assert b'["latest"]' in body
    assert "Link" not in headers
    assert (await pulling.ask(f"/v2/{NAME}/tags/list?n=x"))[0] == 400
    assert b"[]" in (await pulling.ask(f"/v2/{NAME}/tags/list?n=0"))[2]


MISSING = [
    (f"/v2/{NAME}/manifests/other", 404, "MANIFEST_UNKNOWN"),
    (f"/v2/{NAME}/manifests/sha256:{'0' * 64}", 404, "MANIFEST_UNKNOWN"),
    (f"/v2/{NAME}/blobs/sha256:{'0' * 64}", 404, "BLOB_UNKNOWN"),
    (f"/v2/{NAME}/blobs/secret", 400, "DIGEST_INVALID"),
    (f"/v2/{NAME}/blobs/sha256:{'A' * 64}", 404, "BLOB_UNKNOWN"),
    ("/v2/other/manifests/latest", 404, "NAME_UNKNOWN"),
    ("/v2/remuda/manifests/latest", 404, "NAME_UNKNOWN"),
    ("/v2/REMUDA/cluster-agent/manifests/latest", 404, "NAME_UNKNOWN"),
    (f"/v2/{NAME}/blobs/uploads/", 400, "DIGEST_INVALID"),
    (f"/v2/{NAME}", 404, "NAME_UNKNOWN"),
    ("/v2/_catalog", 404, "NAME_UNKNOWN"),
    (f"/v2/{'a/' * 200}b/manifests/latest", 404, "NAME_UNKNOWN"),
]


async def test_what_is_not_there(pulling: Pulling) -> None:
    for path, status, code in MISSING:
        found, headers, body = await pulling.ask(path)
        assert found == status, path
        assert headers["Content-Type"] == "application/json"
        assert f'"code":"{code}"'.encode() in body, path


async def test_a_manifest_is_not_any_blob(pulling: Pulling) -> None:
    layer = image().layers[0]
    assert (await pulling.ask(f"/v2/{NAME}/manifests/{layer.digest}"))[0] == 404


async def test_nobody_pushes(pulling: Pulling) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        status, headers, body = await pulling.ask(f"/v2/{NAME}/manifests/latest", method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
        assert b'"code":"UNSUPPORTED"' in body


async def test_a_broken_layout_tells_nothing_of_the_machine(pulling: Pulling, tmp_path: Path) -> None:
    (tmp_path / "images" / NAME / "index.json").write_text("{")
    status, _, body = await pulling.ask(f"/v2/{NAME}/manifests/latest")
    assert status == 404
    assert str(tmp_path).encode() not in body
