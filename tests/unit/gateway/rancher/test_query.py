"""The query of a list: what is read, and what is refused."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from remuda.gateway.rancher import query
from remuda.gateway.rancher.query import Operator, SortKey, Term
from remuda.kube.errors import ApiError


def filtered(text: str) -> tuple[tuple[Term, ...], ...]:
    return query.parse(f"filter={quote(text)}").filters


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("status.provider=rke2", Term(("status", "provider"), Operator.AMONG, ("rke2",))),
        ("status.provider==rke2", Term(("status", "provider"), Operator.AMONG, ("rke2",))),
        (
            "metadata.labels[provider.cattle.io]!=harvester",
            Term(("metadata", "labels", "provider.cattle.io"), Operator.DIFFERS, ("harvester",)),
        ),
        ('metadata.labels["a.b/c"]=x', Term(("metadata", "labels", "a.b/c"), Operator.AMONG, ("x",))),
        ("metadata.name~demo", Term(("metadata", "name"), Operator.CONTAINS, ("demo",))),
        ("metadata.name!~'a,b'", Term(("metadata", "name"), Operator.LACKS, ("a,b",))),
        ("id IN (fleet-default/a,fleet-default/b)", Term(("id",), Operator.AMONG, ("fleet-default/a", "fleet-default/b"))),
        ("spec.x NOTIN (a, b)", Term(("spec", "x"), Operator.NOT_AMONG, ("a", "b"))),
        ("spec.replicas>3", Term(("spec", "replicas"), Operator.MORE, ("3",))),
        ("spec.replicas < 3", Term(("spec", "replicas"), Operator.LESS, ("3",))),
        ("status.connected", Term(("status", "connected"), Operator.EXISTS)),
        ("!metadata.labels[a/b]", Term(("metadata", "labels", "a/b"), Operator.MISSING)),
        ("metadata.fields[2]=x", Term(("metadata", "fields", 2), Operator.AMONG, ("x",))),
        ("spec.clusterName=a,spec.clusterName=b", Term(("spec", "clusterName"), Operator.AMONG, ("a", "b"))),
    ],
)
def test_a_filter(text: str, term: Term) -> None:
    assert filtered(text) == ((term,),)


def test_alternatives_are_separated_by_commas_and_repeated_filters_must_all_hold() -> None:
    found = query.parse("filter=a=1,b~2&filter=c=3").filters
    assert found == (
        (Term(("a",), Operator.AMONG, ("1",)), Term(("b",), Operator.CONTAINS, ("2",))),
        (Term(("c",), Operator.AMONG, ("3",)),),
    )


def test_order_and_page() -> None:
    found = query.parse("page=2&pagesize=10&sort=-spec.internal,spec.displayName&exclude=metadata.managedFields&revision=7")
    assert found.sort == (SortKey(("spec", "internal"), True), SortKey(("spec", "displayName")))
    assert (found.page, found.page_size, found.revision) == (2, 10, 7)
    assert found.exclude == (("metadata", "managedFields"),)


def test_namespaces_and_projects_inside_and_outside() -> None:
    assert query.parse("projectsornamespaces=a,b").scopes == ("a", "b")
    assert query.parse("projectsornamespaces!=a").outside_scopes == ("a",)


def test_the_largest_page_is_bounded() -> None:
    assert query.parse("pagesize=900000").page_size == query.LARGEST_PAGE


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("filter=" + "a" * query.LONGEST, "characters"),
        ("&".join("filter=a" for _ in range(query.MOST_PARAMETERS + 1)), "parameters"),
        ("filter=" + ",".join(f"a{n}" for n in range(query.MOST_TERMS + 1)), "comparisons"),
        (f"filter=a IN ({','.join('v' * (query.MOST_VALUES + 1))})", "values"),
        ("filter=" + ".".join("a" * (query.DEEPEST + 1)), "steps"),
        ("filter=a=" + "v" * 2000, "a value has more than"),
        ("sort=" + ",".join("abcdefghi"), "sort"),
        ("sort=a..b", "sort"),
        ("filter=a^b", "filter"),
        ("filter==b", "filter"),
        ("filter=a IN (b", "end with )"),
        ("filter=a HAS b", "operator"),
        ("page=-1", "page"),
        ("pagesize=ten", "pagesize"),
        ("revision=" + "9" * 40, "revision"),
        ("projectsornamespaces=" + "a," * (query.MOST_VALUES + 1) + "b", "projectsornamespaces"),
        ("&".join("exclude=a" for _ in range(3)) + "&exclude=a[", "exclude"),
    ],
)
def test_what_is_refused_names_the_parameter(text: str, says: str) -> None:
    with pytest.raises(ApiError) as refusal:
        query.parse(text)
    assert refusal.value.code == 400
    assert says in refusal.value.message
