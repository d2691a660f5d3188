"""Pages for users: links lead somewhere, YAML is YAML, and the picture of a cluster's objects is what the graph makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.kube.encoding import yamlio
from remuda.kube.objects import GroupVersion, dig
from remuda.provisioning.graph import graph_of
from tests.unit.provisioning.graph.wanted_clusters import MANAGED, config, pool, wish

Obj = dict[str, Any]
ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^]\n]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links() -> Iterator[Any]:
    for page in PAGES:
        for target in sorted(set(LINK.findall(CODE.sub("", page.read_text())))):
            if "://" not in target:
                yield pytest.param(page, target, id=f"{page.parent.name}/{page.name}:{target}")


@pytest.mark.parametrize(("page", "target"), [*links()])
def test_a_link_leads_somewhere(page: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    assert found.exists()
    if anchor:
        assert anchor in anchors(found)


def test_the_table_of_the_readme_names_every_page() -> None:
    named = set(re.findall(r"\(docs/([\w-]+\.md)", (ROOT / "README.md").read_text()))
    assert named >= {page.name for page in PAGES if page.parent.name == "docs"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_yaml_can_be_read(page: Path) -> None:
    for text in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        assert all(isinstance(each, dict | list) for each in yamlio.loads_all(text))


# --- the picture --------------------------------------------------------------------------------------------------------------

(PICTURE,) = re.findall(r"```mermaid\n(.*?)```", (ROOT / "docs" / "concepts.md").read_text(), re.DOTALL)
NODES = {(kind, group): name for name, kind, group in re.findall(r'(\w+)\["([^<"]+)<br>([^"]+)"\]', PICTURE)}
MADE = set(re.findall(r"^ *(\w+) --> (\w+)$", PICTURE, re.MULTILINE))
REFERS = set(re.findall(r"^ *(\w+) -\.-> (\w+)$", PICTURE, re.MULTILINE))
WANTED = ("Cluster", "provisioning.cattle.io")


def shown(kind: str, group: str) -> str:
    """The node of the picture; `Pod` is the driver here."""
    return NODES[re.sub("^Pod", "&lt;D&gt;", kind), group]


def test_the_picture_has_what_the_graph_makes() -> None:
    made = graph_of(wish(pool(unhealthyNodeTimeout="5m")), MANAGED, {"cp": config(userdata="x")})
    for each in made:
        group = GroupVersion.parse(each.obj["apiVersion"]).group
        assert (NODES[WANTED], shown(each.obj["kind"], group)) in MADE
    others = {"managed", "kubeconfig", "config", "attempts"}
    assert len([edge for edge in MADE if edge[0] == NODES[WANTED] and edge[1] not in others]) == len(made)


def test_the_picture_has_what_the_objects_refer_to() -> None:
    made = graph_of(wish(pool(unhealthyNodeTimeout="5m")), MANAGED, {"cp": config(userdata="x")})
    paths = (
        ("spec", "controlPlaneRef"),
        ("spec", "infrastructureRef"),
        ("spec", "template", "spec", "bootstrap", "configRef"),
        ("spec", "template", "spec", "infrastructureRef"),
    )
    for each in made:
        for path in paths:
            reference = dig(each.obj, *path)
            if reference is not None:
                group = GroupVersion.parse(each.obj["apiVersion"]).group
                assert (shown(each.obj["kind"], group), shown(reference["kind"], reference["apiGroup"])) in REFERS
