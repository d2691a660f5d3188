"""What pages quote is what the program says: messages, settings, variables of the install script, reasons, waits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remuda.access.settings import settings
from remuda.access.settings.settings import FEATURES
from remuda.kube.waits import Code
from remuda.machines.errors import Reason

ROOT = Path(__file__).parents[3]
SOURCES = [path for pattern in ("*.py", "*.sh") for path in sorted((ROOT / "src" / "remuda").rglob(pattern))]
SAID = " ".join(path.read_text() for path in SOURCES)
# Texts that are written over several lines of source.
JOINED = re.sub(r'"\s*\n\s*f?"', "", SAID)
DOCS = {page.name: page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))}
TROUBLE = DOCS["troubleshooting.md"]
# Where a message has something of its own in it.
GAPS = re.compile(r"…|NAME|<D>|https://|\d+|[(),:]")
QUOTED = sorted({text for row in re.findall(r"^\| (`[^|]*)\|", TROUBLE, re.MULTILINE) for text in re.findall(r"`([^`]+)`", row)})


@pytest.mark.parametrize("text", QUOTED)
def test_a_message_that_is_quoted_is_one_of_ours(text: str) -> None:
    if text.startswith("kubectl "):
        return
    for part in GAPS.split(text):
        if len(part.strip()) > 6:
            assert part.strip() in JOINED, part


def test_every_reason_has_something_to_do() -> None:
    told = set(re.findall(r"`(\w+)`", TROUBLE.split("## A machine of a pool is not made")[1].split("\n## ")[0]))
    assert {reason.value for reason in Reason} - {"Failed"} <= told


def test_every_wait_that_is_named_is_one() -> None:
    named = re.findall(r"\(`(Hook|Drain|Volumes|Budget)`\)|says `(\w+)`", TROUBLE)
    assert {each for pair in named for each in pair if each} <= {code.value for code in Code} | {"disconnected"}


def test_every_setting_that_is_patched_takes_its_value() -> None:
    shape = re.compile(r"""patch setting ([\w-]+) --type merge -p '\{"value": "(.*)"\}'""")
    patched = [found for text in DOCS.values() for found in shape.findall(text)]
    assert len(patched) >= 5
    for name, value in patched:
        assert settings.problem_of(name, value.replace('\\"', '"')) == ""


def test_every_setting_and_feature_of_a_table_is_there() -> None:
    for name in re.findall(r"^\| `([a-z]+(?:-[a-z0-9]+)+)` \|", DOCS["air-gap.md"], re.MULTILINE):
        assert name in settings.SETTINGS
    for name in re.findall(r"Feature `([\w-]+)`", "".join(DOCS.values())):
        assert name in FEATURES


@pytest.mark.parametrize("page", ["air-gap.md", "custom-nodes.md"])
def test_every_variable_of_the_install_script_is_one(page: str) -> None:
    script = (ROOT / "src" / "remuda" / "agent" / "install" / "install.sh").read_text()
    named = set(re.findall(r"\b(?:CATTLE|STRICT)_[A-Z_]+\b", DOCS[page]))
    assert named and {name for name in named if name not in script} == set()


def test_every_argument_of_the_install_script_is_one() -> None:
    script = (ROOT / "src" / "remuda" / "agent" / "install" / "install.sh").read_text()
    table = DOCS["custom-nodes.md"].split("## Arguments of the script")[1].split("\n## ")[0]
    named = {name for row in re.findall(r"^\| (`--[^|]*)\|", table, re.MULTILINE) for name in re.findall(r"`(--[\w-]+)", row)}
    assert named and {name for name in named if f" {name}" not in script} == set()
