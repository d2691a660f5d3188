"""Trees become the same bytes each time, and images what the OCI's formats say."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from remuda.images import Image, Layout, LayoutError, Node, Tree, images_directory, layer_of


def tree(*order: str) -> Tree:
    made = Tree()
    parts = {
        "file": lambda: made.file("/usr/bin/tool", "#!/bin/sh\n", 0o755),
        "link": lambda: made.link("bin", "usr/bin"),
        "long": lambda: made.file("usr/share/" + "d" * 90 + "/" + "f" * 90, b"\0" * 5000),
        "directory": lambda: made.directory("tmp", 0o1777),
    }
    for part in order or tuple(parts):
        parts[part]()
    return made


def test_the_order_of_adding_does_not_matter() -> None:
    first, second = layer_of(tree(), "x"), layer_of(tree("directory", "long", "link", "file"), "x")
    assert first == second
    assert first.digest == f"sha256:{hashlib.sha256(first.content).hexdigest()}"
    assert first.diff_id == f"sha256:{hashlib.sha256(gzip.decompress(first.content)).hexdigest()}"
    # Neither time nor name in gzip's header.
    assert first.content[:4] == b"\x1f\x8b\x08\x00"
    assert first.content[4:8] == b"\0\0\0\0"


def test_an_archive_has_no_author_and_no_time() -> None:
    with tarfile.open(fileobj=io.BytesIO(tree().tar(epoch=1_700_000_000))) as archive:
        entries = archive.getmembers()
    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
    assert {(entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) for entry in entries} == {(0, 0, "", "", 1_700_000_000)}
    by_name = {entry.name: entry for entry in entries}
    assert by_name["usr/bin/tool"].mode == 0o755
    assert by_name["usr/bin"].isdir(), "what something is in is there before it"
    assert by_name["bin"].issym()
    assert by_name["tmp"].mode == 0o1777


@pytest.mark.parametrize("path", ["", "/", "../x", "a/../b", "."])
def test_nothing_is_outside_of_an_image(path: str) -> None:
    with pytest.raises(ValueError):
        Tree().file(path, b"")


def test_unpacked_links_stay_inside(tmp_path: Path) -> None:
    made = Tree()
    made.file("etc/certs/all", "content")
    made.link("usr/lib/ssl/cert.pem", "/etc/certs/all")
    made.unpack(tmp_path)
    assert (tmp_path / "usr/lib/ssl/cert.pem").read_text() == "content"


def test_what_is_kept_and_put() -> None:
    made = tree()
    made.keep(lambda path: path.startswith("usr/bin"))
    made.put("x", Node(0o644, b"12345"))
    assert list(made) == ["usr/bin/tool", "x"]
    assert made.size == 15


def image(content: str = "hello") -> Image:
    made = Tree()
    made.file("hello", content)
    return Image("amd64", [layer_of(made, "greeting")], {"Entrypoint": ["/hello"]}, {"a": "b"})


def test_a_layout_as_the_format_says(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "a" / "b")
    digest = layout.write(image(), ("1", "latest"))
    assert json.loads((layout.directory / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((layout.directory / "index.json").read_text())
    assert [entry["annotations"]["org.opencontainers.image.ref.name"] for entry in index["manifests"]] == ["1", "latest"]
    assert {entry["digest"] for entry in index["manifests"]} == {digest}
    found = layout.manifest("latest")
    assert found is not None
    manifest = json.loads(found.content)
    for part in (manifest["config"], *manifest["layers"]):
        path = layout.blob(part["digest"])
        assert path is not None
        assert (len(path.read_bytes()), f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}") == (
            part["size"],
            part["digest"],
        )
    config = json.loads((layout.blob(manifest["config"]["digest"]) or Path()).read_text())
    assert config["config"] == {"Entrypoint": ["/hello"]}
    assert config["created"] == "1970-01-01T00:00:00Z"


def test_the_same_image_twice_is_the_same_and_another_replaces_it(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert layout.write(image(), ("latest",)) == layout.write(image(), ("latest",))
    before = {path.name for path in (tmp_path / "blobs" / "sha256").iterdir()}
    assert len(before) == 3
    layout.write(image("other"), ("latest",))
    after = {path.name for path in (tmp_path / "blobs" / "sha256").iterdir()}
    assert len(after) == 3
    assert not before & after


def test_what_is_no_layout(tmp_path: Path) -> None:
    assert not Layout(tmp_path).exists()
    with pytest.raises(LayoutError):
        Layout(tmp_path).tags()
    for digest in ("", "sha256:", "sha256:../../x", "md5:0", f"sha256:{'0' * 64}"):
        assert Layout(tmp_path).blob(digest) is None


def test_where_images_are() -> None:
    assert images_directory({"REMUDA_IMAGES": "/x", "HOME": "/h"}) == Path("/x")
    assert images_directory({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/remuda/images")
    assert images_directory({"HOME": "/h"}) == Path("/h/.cache/remuda/images")
    assert images_directory({}) == Path("/var/cache/remuda/images")
