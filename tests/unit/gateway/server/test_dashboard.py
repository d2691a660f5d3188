"""The page as it is served: one build at a time, kept by browsers for ever, and never mixed with another one."""

from __future__ import annotations

import gzip
import re

import pytest

from remuda.gateway.server.dashboard import HOME, built, is_visit, page_of, sent
from remuda.gateway.server.headers import OWN_ANSWER
from remuda.gateway.server.path_validation import judge

INDEX = b'<script type="module" src="./index.js"></script><link rel="stylesheet" href="./index.css">'
FILES = {"index.html": INDEX, "index.js": b"import './other.js'", "index.css": b"a{}", "sources.sha256": b"of lint\n"}
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def test_the_index_names_the_files_of_its_own_build() -> None:
    page = page_of(FILES)
    assert f'src="/dashboard/_/{page.digest}/index.js"'.encode() in page.index.content
    assert f'href="/dashboard/_/{page.digest}/index.css"'.encode() in page.index.content
    assert page.at(f"_/{page.digest}/index.js") is page.files["index.js"]


def test_a_changed_file_changes_the_address_of_all() -> None:
    page, other = page_of(FILES), page_of({**FILES, "index.css": b"a{color:red}"})
    assert page.digest != other.digest
    assert other.at(f"_/{page.digest}/index.js") is None


@pytest.mark.parametrize("path", ["", "clusters", "clusters/fleet-default/demo/now", "index.js"])
def test_every_view_is_answered_with_the_index(path: str) -> None:
    page = page_of(FILES)
    assert page.at(path) is page.index


def test_the_file_for_the_linter_is_not_served() -> None:
    page = page_of(FILES)
    assert page.at(f"_/{page.digest}/sources.sha256") is None
    assert page.digest == page_of({**FILES, "sources.sha256": b"another\n"}).digest


def test_files_are_kept_for_ever_and_the_index_is_asked_for_again() -> None:
    page = page_of(FILES)
    assert sent(page.files["index.js"], {}).headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert sent(page.index, {}).headers["Cache-Control"] == "no-cache"


def test_a_client_that_has_the_file_is_told_so() -> None:
    index = page_of(FILES).index
    first = sent(index, {})
    again = sent(index, {"If-None-Match": f'"other", W/{first.headers["ETag"]}'})
    assert (again.status, again.body) == (304, None)


def test_clients_that_take_gzip_get_it_under_a_tag_of_its_own() -> None:
    index = page_of(FILES).index
    plain, packed = sent(index, {"Accept-Encoding": "br"}), sent(index, {"Accept-Encoding": "br, gzip;q=0.5"})
    assert isinstance(packed.body, bytes) and gzip.decompress(packed.body) == plain.body == index.content
    assert packed.headers["Content-Encoding"] == "gzip" and "Content-Encoding" not in plain.headers
    assert packed.headers["ETag"] != plain.headers["ETag"]
    assert packed.headers["Vary"] == plain.headers["Vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    ("method", "target", "accepted", "expected"),
    [
        ("GET", "/", BROWSER, True),
        ("HEAD", "/?x=1", BROWSER, True),
        ("GET", "/", "application/json, */*", False),
        ("GET", "/", "", False),
        ("GET", "/api", BROWSER, False),
        ("POST", "/", BROWSER, False),
    ],
)
def test_only_a_browser_that_visits_the_root_is_sent_to_the_page(method: str, target: str, accepted: str, expected: bool) -> None:
    assert is_visit(method, judge(target), accepted) is expected


# --- the build in the repository ------------------------------------------------------------------------------------------


def test_the_build_needs_nothing_that_the_policy_forbids() -> None:
    index = built().index.content.decode()
    assert "script-src 'self';" in OWN_ANSWER["Content-Security-Policy"]
    for tag in re.findall(r"<script\b([^>]*)>([^<]*)", index):
        assert "src=" in tag[0] and tag[1].strip() == "", "an inline script"
    assert " on" not in " ".join(re.findall(r"<[^>]+>", index.replace(" content=", ""))), "an inline handler"
    for address in re.findall(r'(?:src|href)="([^"]+)"', index):
        assert address.startswith(f"{HOME}_/"), address


def test_the_page_is_small() -> None:
    page = built()
    first = [name for name in page.files if f'/{name}"' in page.index.content.decode() and name.endswith(".js")]
    assert "index.js" in first
    assert sum(len(page.files[name].packed) for name in first) <= 60 << 10
    assert sum(len(file.content) for file in page.files.values()) <= 1_500_000
