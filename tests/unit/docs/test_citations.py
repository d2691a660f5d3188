"""A document that a source, a test, a script or a page cites is in the repository, and has the heading that is named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .test_pages import anchors

ROOT = Path(__file__).parents[3]
CITING = ("src", "tests", "docs", "scripts", "examples", ".ci", "README.md", "Makefile", "pyproject.toml")
NO_TEXT = frozenset({".json", ".lock", ".png", ".svg", ".js", ".css", ".map", ".xz", ".gz", ".pyc", ".woff2", ".ico"})
# The path of a page, and a heading of it after a hash; not the end of a URL, nor a name that is made while the program runs.
CITED = re.compile(r"(?<![\w./:*{}<>-])((?:\.\.?/)*(?:[\w-]+/)*[\w-]+\.md)(?:#([\w-]+))?(?![\w*{}])")
# A section of another document, which no reader of the repository can look up. Of a standard it may be.
SECTION = re.compile(r"(?<!RFC \d{4} )§ ?\d|\b(?:design|seed) (?:§|section|\d)")


def sources() -> Iterator[Path]:
    for name in CITING:
        top = ROOT / name
        found = [top] if top.is_file() else sorted(top.rglob("*"))
        for path in found:
            if path.is_file() and path.suffix not in NO_TEXT and not {"__pycache__", "node_modules"} & set(path.parts):
                yield path


@cache
def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""


def page(name: str, citing: Path) -> Path | None:
    """The page of that name: beside the file that cites it, in the repository, in its docs, or of its tests."""
    bases = (citing.parent, ROOT, ROOT / "docs", ROOT / "tests")
    return next((found for base in bases if (found := base / name).is_file()), None)


def problem(name: str, heading: str, citing: Path) -> str:
    found = page(name, citing)
    if found is None:
        return "no such document"
    return "" if not heading or heading in anchors(found) else f"no heading {heading}"


def test_every_document_that_is_cited_exists_with_its_heading() -> None:
    cited = [(path, *match.groups(default="")) for path in sources() for match in CITED.finditer(text_of(path))]
    assert len([name for _, name, _ in cited if name.startswith("docs/reference/")]) > 100
    wrong = [
        f"{path.relative_to(ROOT)}: {name}#{heading}: {why}"
        for path, name, heading in cited
        if (why := problem(name, heading, path))
    ]
    assert wrong == []


def test_no_section_of_a_document_is_cited_by_its_number() -> None:
    here = Path(__file__)
    wrong = [
        f"{path.relative_to(ROOT)}: {match[0]}" for path in sources() if path != here for match in SECTION.finditer(text_of(path))
    ]
    assert wrong == []


def test_every_page_of_the_reference_is_in_its_index() -> None:
    index = (ROOT / "docs" / "reference" / "README.md").read_text()
    pages = {found.name for found in (ROOT / "docs" / "reference").glob("*.md")} - {"README.md"}
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", index)) == pages
