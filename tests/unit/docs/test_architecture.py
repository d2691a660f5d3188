"""docs/architecture.md, docs/changing.md and docs/tests.md agree with the source tree and with the import contract."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "remuda"
DOCS = ROOT / "docs"
PAGE = (DOCS / "architecture.md").read_text()
CHANGING = (DOCS / "changing.md").read_text()
PAGES = f"{PAGE}\n{CHANGING}\n{(DOCS / 'tests.md').read_text()}"
ENDINGS = r"\.(?:py|md|sh|json|env|toml|yaml)"
WALKS = ("Walk 1", "Walk 2", "Walk 3", "Walk 4")
RECIPES = (
    "A field of RKEConfig",
    "A controller",
    "A driver",
    "A built-in kind",
    "A kind of ours",
    "A path of the gateway",
    "A setting, or an option of the server",
    "A command",
    "The message of a wait or a condition",
    "The order of an operation, such as a restore",
    "Authentication of a proxied request",
)


def section(title: str, page: str = PAGE) -> str:
    """The text below the one heading that begins so."""
    found = re.findall(rf"^## {re.escape(title)}\b.*?\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"{len(found)} sections {title!r}"
    return str(found[0])


def rooms() -> set[str]:
    """Packages and modules directly below `src/remuda`."""
    inside = (path for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())
    return {path.stem for path in inside if not path.stem.startswith("__")}


def numbered(text: str) -> list[str]:
    """The items of a numbered list, each with the lines that continue it."""
    return re.findall(r"^\d+\. .*(?:\n {3,}.*)*", text, re.MULTILINE)


def named_paths(text: str) -> set[str]:
    """Quoted words with a slash, but no URL path, and quoted file names."""
    words = re.findall(r"`([^`\s]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return {word for word in words if not word.startswith("/") and ("/" in word or re.search(rf"{ENDINGS}$", word))}


def is_there(path: str) -> bool:
    """Relative to `src/remuda` or to the repository; `<kind>` stands for any name."""
    pattern = path.rstrip("/").replace("<kind>", "*")
    found = [each for base in (SOURCE, ROOT) for each in base.glob(pattern)]
    return any(each.is_dir() or not path.endswith("/") for each in found)


def layers(text: str) -> list[set[str]]:
    return [set(re.findall(r"`(\w+)`", layer)) for layer in text.split("<")]


def test_every_room_has_one_row() -> None:
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", section("The rooms"), re.MULTILINE)
    assert sorted(rows) == sorted(rooms())


def test_every_path_exists() -> None:
    paths = named_paths(PAGES)
    assert len(paths) > 200
    assert sorted(path for path in paths if not is_there(path)) == []


def test_every_link_leads_to_a_file() -> None:
    targets = {target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", PAGES)}
    assert len(targets) > 10
    assert sorted(target for target in targets if not (DOCS / target).is_file()) == []


def test_rooms_in_the_picture_exist() -> None:
    picture = PAGE.split("```")[1]
    found = set(re.findall(r"(?<![\w/])((?:[a-z]+/)+)", picture))
    assert len(found) > 20
    bases = (SOURCE, SOURCE / "apiserver", SOURCE / "gateway")
    assert sorted(path for path in found if not any((base / path).is_dir() for base in bases)) == []


def test_the_order_of_imports_is_the_contract() -> None:
    told = section("The rooms").split("Imports go down, never up: ")[1].split(". ")[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    held = project["tool"]["importlinter"]["contracts"][0]["layers"]
    assert layers(told) == [set(re.findall(r"remuda\.(\w+)", layer)) for layer in reversed(held)]


@pytest.mark.parametrize("walk", WALKS)
def test_every_step_of_a_walk_names_a_module(walk: str) -> None:
    steps = numbered(section(walk))
    assert len(steps) > 10
    assert [int(step.partition(".")[0]) for step in steps] == list(range(1, len(steps) + 1))
    assert [step for step in steps if not any(path.endswith(".py") for path in named_paths(step))] == []


def test_no_step_or_row_names_a_module_twice() -> None:
    steps = [*numbered(PAGES), *re.findall(r"^\|.*\|$", PAGES, re.MULTILINE)]
    assert len(steps) > 100
    quoted = {step: re.findall(r"`([^`\s]+\.py)`", step) for step in steps}
    assert [step for step, paths in quoted.items() if len(paths) > len(set(paths))] == []


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_names_code_tests_and_docs(recipe: str) -> None:
    paths = named_paths(section(recipe, CHANGING))
    assert any(path.endswith(".py") and not path.startswith("tests/") for path in paths)
    assert any(path.startswith("tests/") for path in paths)
    assert any(path.startswith("docs/") for path in paths)


def packages() -> dict[Path, str]:
    """The docstring of each package, in one line."""
    found = {path.parent / "__init__.py" for path in SOURCE.rglob("*.py")} - {SOURCE / "__init__.py"}
    assert len(found) > 50
    docs = {init.parent: ast.get_docstring(ast.parse(init.read_text())) if init.exists() else "" for init in found}
    return {package: " ".join((text or "").split()) for package, text in docs.items()}


def test_every_package_says_what_lives_there_what_does_not_and_where_to_begin() -> None:
    silent = [package for package, text in packages().items() if "Not here" not in text or not beginning(text)]
    assert sorted(str(package.relative_to(ROOT)) for package in silent) == []


def beginning(text: str) -> str:
    """The last sentence of a package, which names the modules to read first."""
    found = re.findall(r"(?:Read|Begin with) +(.*)", text)
    return str(re.split(r"\.(?: |$)", found[-1])[0]) if found else ""


def is_in(package: Path, name: str) -> bool:
    """A module, package or file there, a name of a module (`update.guaranteed_update`), or a name of the package itself."""
    path = package / name.lstrip(".").replace(".", "/")
    candidates = (path, path.with_suffix(".py"), path.parent.with_suffix(".py"), package / name)
    return any(each.exists() for each in candidates if each != package) or defines(package / "__init__.py", name)


def defines(module: Path, name: str) -> bool:
    return re.search(rf"^(?:(?:async )?def |class )?{re.escape(name)}\b", module.read_text(), re.MULTILINE) is not None


def test_the_modules_to_read_first_exist() -> None:
    missing = []
    for package, text in packages().items():
        told = beginning(text)
        named = [*re.findall(r"`+([^`]+)`", told)[:1], *re.findall(r":mod:`([^`]+)`", told)]
        assert named, package
        missing += [f"{package.relative_to(SOURCE)}: {name}" for name in named if not is_in(package, name)]
    assert sorted(missing) == []
