"""Images: names, registries, fetching, unpacking."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from remuda.agent.errors import ImageError
from remuda.agent.images import ImageReference, Stager, parse
from remuda.agent.images.extract import Tree
from remuda.agent.images.pull import Puller, host_architecture
from remuda.agent.images.registries import Registries, load, rewritten
from tests.integration.agent.builders import FixedClock, server
from tests.unit.certificates import certificate


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("rancher/x:y", "index.docker.io/rancher/x:y"),
        ("x", "index.docker.io/library/x:latest"),
        ("docker.io/rancher/x:y", "index.docker.io/rancher/x:y"),
        ("localhost/x:y", "localhost/x:y"),
        ("reg.example:5000/a/b:v1.2.3-k3s1", "reg.example:5000/a/b:v1.2.3-k3s1"),
        ("reg.example/a@sha256:" + "0" * 64, "reg.example/a@sha256:" + "0" * 64),
    ],
)
def test_names_are_made_whole(text: str, whole: str) -> None:
    assert str(parse(text)) == whole


@pytest.mark.parametrize("text", ["", "UPPER/x", "a:b c", "../etc:x", "a@sha256:1", "reg.io/:x"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ImageError):
        parse(text)


Entry = tuple[str, str, Any]


def layer(*entries: Entry) -> bytes:
    """A tar of (kind, name, what): f content or (content, mode), d, s target, h target, c device."""
    kinds = {"f": tarfile.REGTYPE, "d": tarfile.DIRTYPE, "s": tarfile.SYMTYPE, "h": tarfile.LNKTYPE, "c": tarfile.CHRTYPE}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for kind, name, what in entries:
            info = tarfile.TarInfo(name)
            info.type = kinds[kind]
            data = b""
            if kind == "f":
                data, info.mode = (what[0].encode(), what[1]) if isinstance(what, tuple) else (what.encode(), 0o644)
                info.size = len(data)
            elif kind in "sh":
                info.linkname = what
            elif kind == "d":
                info.mode = what or 0o700
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def unpack(root: Path, *layers: bytes) -> Path:
    tree = Tree(str(root))
    for one in layers:
        tree.add_layer(io.BytesIO(one))
    return root


def test_files_have_modes_but_no_owners_and_no_more_than_755(tmp_path: Path) -> None:
    root = unpack(
        tmp_path / "r",
        layer(("f", "run.sh", ("x", 0o4777)), ("d", "d", 0o700), ("f", "./d/e/f", "y"), ("f", "/abs", "z"), ("c", "null", None)),
    )
    modes = {name: (root / name).stat().st_mode & 0o7777 for name in ("run.sh", "d", "d/e", "d/e/f", "abs")}
    assert modes == {"run.sh": 0o755, "d": 0o755, "d/e": 0o755, "d/e/f": 0o644, "abs": 0o644}
    assert not (root / "null").exists()


def test_layers_lie_over_each_other_and_whiteouts_take_away(tmp_path: Path) -> None:
    root = unpack(
        tmp_path / "r",
        layer(
            ("f", "a", "1"), ("f", "d/x", "1"), ("f", "d/y", "1"), ("f", "o/old", "1"), ("d", "gone", 0), ("f", "gone/deep", "1")
        ),
        layer(
            ("f", "a", "2"),
            ("f", "d/.wh.x", ""),
            ("f", "o/new", "2"),
            ("f", "o/.wh..wh..opq", ""),
            ("f", ".wh.gone", ""),
            ("f", "gone/back", "2"),
        ),
        layer(("f", "d/y/now/dir", "3")),
    )
    assert (root / "a").read_text() == "2"
    assert sorted(os.listdir(root / "o")) == ["new"]
    assert sorted(os.listdir(root / "gone")) == ["back"]
    assert not (root / "d/x").exists()
    assert (root / "d/y/now/dir").read_text() == "3"


def test_links_are_kept_and_followed_only_inside(tmp_path: Path) -> None:
    root = unpack(
        tmp_path / "r",
        layer(("f", "usr/bin/a", "1"), ("s", "bin", "usr/bin"), ("h", "hard", "usr/bin/a"), ("s", "abs", "/usr")),
        layer(("f", "bin/b", "2"), ("f", "abs/c", "3")),
    )
    assert os.readlink(root / "bin") == "usr/bin"
    assert (root / "usr/bin/b").read_text() == "2"
    assert (root / "usr/c").read_text() == "3"
    assert (root / "hard").stat().st_ino == (root / "usr/bin/a").stat().st_ino


@pytest.mark.parametrize(
    "layers",
    [
        [[("f", "../outside", "evil")]],
        [[("f", "a/../../outside", "evil")]],
        [[("s", "l", ".."), ("f", "l/outside", "evil")]],
        [[("s", "l", "../outside"), ("f", "l", "evil")]],
        [[("s", "l", "../../../../../../../../..")], [("f", "l/tmp/x", "evil")]],
        [[("h", "l", "../outside")]],
        [[("s", "l", "../outside"), ("h", "m", "l")]],
        [[("s", "l", ".."), ("h", "m", "l/outside"), ("f", "m", "evil")]],
        [[("s", "l", "..")], [("f", "l/.wh.outside", "")]],
        [[("s", "l", "..")], [("f", "l/.wh..wh..opq", "")]],
        [[("f", ".wh...", "")]],
        [[("s", "a", "b"), ("s", "b", "a"), ("f", "a/x", "evil")]],
    ],
)
def test_no_image_reaches_out_of_its_directory(tmp_path: Path, layers: list[list[Entry]]) -> None:
    (tmp_path / "outside").write_text("mine")
    before = sorted(os.listdir(tmp_path))
    with contextlib.suppress(ImageError):
        unpack(tmp_path / "r", *(layer(*entries) for entries in layers))
    assert (tmp_path / "outside").read_text() == "mine"
    assert (tmp_path / "outside").stat().st_nlink == 1
    assert sorted({*os.listdir(tmp_path)} - {"r"}) == before


def test_a_broken_layer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ImageError):
        unpack(tmp_path / "r", b"this is no tar" * 100)


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class FakeRegistry:
    """A registry with one image of two layers, which can ask for tokens, redirect and break off."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.asked: list[tuple[str, str, dict[str, list[str]], str]] = []
        self.token = ""
        self.basic = ""
        self.url = ""
        self.break_after = 0
        self.cdn = ""
        layers = [gzip.compress(layer(("f", "run.sh", ("#!/bin/sh\necho hello $1\n", 0o755)))), layer(("f", "data", "d" * 5000))]
        image = {"schemaVersion": 2, "layers": [{"mediaType": "x", "digest": self.blob(one), "size": len(one)} for one in layers]}
        manifest = json.dumps(image).encode()
        self.manifests[digest(manifest)] = ("application/vnd.oci.image.manifest.v1+json", manifest)
        index = json.dumps(
            {
                "mediaType": "application/vnd.oci.image.index.v1+json",
                "manifests": [
                    {"digest": "sha256:" + "0" * 64, "platform": {"os": "linux", "architecture": "riscv"}},
                    {"digest": digest(manifest), "platform": {"os": "linux", "architecture": host_architecture()}},
                ],
            }
        ).encode()
        self.manifests["v1"] = ("application/vnd.oci.image.index.v1+json", index)

    def blob(self, data: bytes) -> str:
        self.blobs[digest(data)] = data
        return digest(data)

    def __call__(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes] | None:
        url = urlsplit(request.path)
        query = parse_qs(url.query)
        authorization = request.headers.get("Authorization") or ""
        self.asked.append((request.command, url.path, query, authorization))
        if url.path == "/token":
            form = {**query, **parse_qs(body.decode())}
            good = authorization == self.basic or form.get("refresh_token") == ["identity"]
            return (
                (200, {}, json.dumps({"token": self.token}).encode())
                if good and form["scope"] == ["repository:a/b:pull"]
                else (403, {}, b"")
            )
        if self.token and authorization != f"Bearer {self.token}" and not url.path.startswith("/cdn/"):
            return 401, {"WWW-Authenticate": f'Bearer realm="{self.url}/token",service="s",scope="repository:a/b:pull"'}, b""
        name = url.path.rpartition("/")[2]
        if "/manifests/" in url.path and name in self.manifests and "/a/b/" in url.path:
            kind, data = self.manifests[name]
            return 200, {"Content-Type": kind, "Docker-Content-Digest": digest(data)}, data
        if self.cdn and "/blobs/" in url.path:
            return 307, {"Location": f"{self.cdn}/cdn/{name}"}, b""
        if name in self.blobs:
            return self._blob(request, self.blobs[name])
        return 404, {}, b""

    def _blob(self, request: BaseHTTPRequestHandler, data: bytes) -> tuple[int, dict[str, str], bytes] | None:
        start = int((request.headers.get("Range") or "bytes=0-")[6:-1])
        part, code = data[start:], 206 if start else 200
        headers = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
        if self.break_after and len(part) > self.break_after:
            request.send_response(code)
            for key, value in {**headers, "Content-Length": str(len(part))}.items():
                request.send_header(key, value)
            request.end_headers()
            request.wfile.write(part[: self.break_after])
            request.wfile.flush()
            request.close_connection = True
            return None
        return code, headers, part


def pull(reference: str, tmp_path: Path, **registries: Any) -> list[bytes]:
    layers = Puller(Registries(**registries), str(tmp_path / "blobs")).pull(parse(reference))
    return [Path(one.path).read_bytes() for one in layers]


def host_of(url: str) -> str:
    return url.partition("://")[2]


def test_an_image_for_this_host_is_fetched_from_a_list(tmp_path: Path) -> None:
    registry = FakeRegistry()
    with server(registry) as url:
        assert pull(f"{host_of(url)}/a/b:v1", tmp_path) == list(registry.blobs.values())
        with pytest.raises(ImageError, match="404"):
            pull(f"{host_of(url)}/a/b:v2", tmp_path)
        with pytest.raises(ImageError, match="only for linux/riscv"):
            Puller(Registries(), str(tmp_path / "blobs"), architecture="s390x").pull(parse(f"{host_of(url)}/a/b:v1"))


@pytest.mark.parametrize(
    "auth", [{"username": "u", "password": "p"}, {"auth": base64.b64encode(b"u:p").decode()}, {"identity_token": "identity"}]
)
def test_a_token_is_asked_for_with_the_hosts_credentials(tmp_path: Path, auth: dict[str, str]) -> None:
    registry = FakeRegistry()
    registry.token, registry.basic = "t0ken", "Basic " + base64.b64encode(b"u:p").decode()
    with server(registry) as url:
        registry.url = url
        pull(f"{host_of(url)}/a/b:v1", tmp_path, configs={host_of(url): {"auth": auth}})
        assert sum(path == "/token" for _, path, _, _ in registry.asked) == 1
        with pytest.raises(ImageError, match="403"):
            pull(f"{host_of(url)}/a/b:v1", tmp_path, configs={host_of(url): {"auth": {"username": "u", "password": "wrong"}}})


def test_mirrors_are_asked_first_with_rewritten_names_and_the_registrys_name(tmp_path: Path) -> None:
    registry = FakeRegistry()
    dead = lambda *_: (500, {}, b"")  # noqa: E731
    with server(registry) as url, server(dead) as broken:
        mirror = {"endpoint": [broken, url], "rewrite": {"^rancher/(.*)$": "a/$1"}}
        assert len(pull("rancher/b:v1", tmp_path, mirrors={"docker.io": mirror})) == 2
    assert registry.asked[0][1:3] == ("/v2/a/b/manifests/v1", {"ns": ["docker.io"]})


def test_the_first_mirror_key_that_is_there_wins_and_the_registry_is_last() -> None:
    registries = Registries({"*": {"endpoint": ["https://any"]}, "reg.io": {"endpoint": ["m1:5000", "http://m2/path"]}})
    found = [endpoint.url.geturl() for endpoint in registries.endpoints(ImageReference("reg.io", "a", "b"))]
    assert found == ["https://m1:5000/v2", "http://m2/path", "https://reg.io/v2"]
    other = [endpoint.url.geturl() for endpoint in registries.endpoints(ImageReference("other.io", "a", "b"))]
    assert other == ["https://any/v2", "https://other.io/v2"]


def test_a_registry_among_its_own_mirrors_is_asked_as_itself() -> None:
    mirror = {"endpoint": ["https://index.docker.io", "https://m"], "rewrite": {".*": "other"}}
    found = Registries({"docker.io": mirror}).endpoints(ImageReference("index.docker.io", "a/b", "v1"))
    assert [(each.repository, each.namespace) for each in found] == [("a/b", ""), ("other", "docker.io"), ("a/b", "")]


def test_rewrites_understand_gos_groups() -> None:
    assert rewritten("rancher/x", {"^nothing": "n", "^rancher/(.*)": "proj/${1}-r", ".*": "never"}) == "proj/x-r"
    assert rewritten("a/b", {"(.*)": "proxy/$1"}) == "proxy/a/b", "once, although nothing at its end would match, too"
    assert rewritten("abab", {"a": "x"}) == "xbxb" and rewritten("ab", {"": "-"}) == "-a-b-"
    with pytest.raises(ImageError):
        rewritten("a", {"(": "x"})


def test_trust_and_credentials_come_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "registries.yaml"
    path.write_text(
        "configs:\n  'reg.io:5000':\n    tls: {ca_file: /ca, insecure_skip_verify: true}\n    auth: {username: u, password: p}\n"
    )
    endpoint = load(str(path)).endpoints(ImageReference("reg.io:5000", "a", "b"))[0]
    assert (endpoint.trust.ca_file, endpoint.trust.insecure, endpoint.auth.username) == ("/ca", True, "u")
    assert "p" not in repr(endpoint.auth).replace("repr", "").partition("username")[2].replace("'u'", "")
    path.write_text("- no\n")
    with pytest.raises(ImageError):
        load(str(path))


def test_a_blob_that_breaks_off_is_resumed(tmp_path: Path) -> None:
    registry = FakeRegistry()
    registry.break_after = 4000
    with server(registry) as url:
        assert pull(f"{host_of(url)}/a/b:v1", tmp_path) == list(registry.blobs.values())
    big = digest(list(registry.blobs.values())[1])
    assert sum(path.endswith(big) for _, path, _, _ in registry.asked) >= 3


def test_damaged_blobs_and_manifests_are_refused(tmp_path: Path) -> None:
    registry = FakeRegistry()
    first = next(iter(registry.blobs))
    registry.blobs[first] = b"x" * len(registry.blobs[first])
    with server(registry) as url:
        with pytest.raises(ImageError, match="damaged"):
            pull(f"{host_of(url)}/a/b:v1", tmp_path)
        assert os.listdir(tmp_path / "blobs") == []
        name = next(name for name in registry.manifests if name != "v1")
        registry.manifests[name] = (registry.manifests[name][0], registry.manifests[name][1] + b" ")
        with pytest.raises(ImageError, match="has the digest"):
            pull(f"{host_of(url)}/a/b:v1", tmp_path)


def test_credentials_do_not_follow_a_redirect_to_another_host(tmp_path: Path) -> None:
    registry, cdn = FakeRegistry(), FakeRegistry()
    registry.token, registry.basic = "t0ken", "Basic " + base64.b64encode(b"u:p").decode()
    with server(registry) as url, server(cdn) as elsewhere:
        registry.url, registry.cdn = url, elsewhere
        pull(f"{host_of(url)}/a/b:v1", tmp_path, configs={host_of(url): {"auth": {"username": "u", "password": "p"}}})
    assert len(cdn.asked) == 2
    assert all(authorization == "" for _, _, _, authorization in cdn.asked)


def test_a_registrys_own_ca_is_trusted_only_when_told(tmp_path: Path) -> None:
    import ssl

    cert, key = certificate(tmp_path, "registry")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with server(FakeRegistry(), context) as url:
        name, mirrors = host_of(url), {host_of(url): {"endpoint": [url]}}
        for tls in ({"ca_file": str(cert)}, {"insecure_skip_verify": True}):
            assert len(pull(f"{name}/a/b:v1", tmp_path, mirrors=mirrors, configs={name: {"tls": tls}})) == 2
        with pytest.raises(ImageError, match="not trusted"):
            pull(f"{name}/a/b:v1", tmp_path, mirrors=mirrors)
        with pytest.raises(ImageError, match="can't use the certificates"):
            pull(f"{name}/a/b:v1", tmp_path, mirrors=mirrors, configs={name: {"tls": {"ca_file": "/no/such"}}})


def stager(tmp_path: Path) -> Stager:
    return Stager(
        str(tmp_path / "images"), str(tmp_path / "registries.yaml"), str(tmp_path / "blobs"), FixedClock(), lambda line: None
    )


def test_a_staged_image_leaves_nothing_but_its_files(tmp_path: Path) -> None:
    with server(FakeRegistry()) as url:
        stager(tmp_path).stage(f"{host_of(url)}/a/b:v1", str(tmp_path / "x"))
    assert sorted(os.listdir(tmp_path / "x")) == ["data", "run.sh"]
    assert os.listdir(tmp_path / "blobs") == []


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tgz", "tar.bz2", "tar.zst"])
def test_a_saved_image_needs_no_network(tmp_path: Path, ending: str) -> None:
    import bz2
    import subprocess

    if ending == "tar.zst" and not shutil.which("zstd"):
        pytest.skip("no zstd here")
    inner = layer(("f", "run.sh", "saved"))
    manifest = json.dumps([{"RepoTags": ["rancher/x:y"], "Layers": ["l/layer.tar"]}])
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in (("l/layer.tar", inner), ("manifest.json", manifest.encode())):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    data = out.getvalue()
    (tmp_path / "images/deep").mkdir(parents=True)
    (tmp_path / "images/.hidden.tar").write_bytes(b"junk")
    if ending == "tar.zst":
        data = subprocess.run(["zstd", "-c"], input=data, capture_output=True, check=True).stdout
    else:
        data = {"tar": lambda d: d, "tar.bz2": bz2.compress}.get(ending, gzip.compress)(data)
    (tmp_path / f"images/deep/x.{ending}").write_bytes(data)
    stager(tmp_path).stage("rancher/x:y", str(tmp_path / "out"))
    assert (tmp_path / "out/run.sh").read_text() == "saved"
