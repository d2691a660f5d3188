"""Machines are named by their set's template; `tests/unit/capi/admission/checks.py` has what a template may say."""

from __future__ import annotations

import pytest

from remuda.capi.naming import NameTemplateError, machine_name
from remuda.kube.clock import Rng


def named(template: str, cluster: str = "prod", machine_set: str = "workers-abc") -> str:
    return machine_name(template, cluster, machine_set, lambda length: "x" * length)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ .machineSet.name }}-{{ .random }}", "workers-abc-xxxxx"),
        ("{{ .cluster.name }}-{{ .machineSet.name }}-{{ .random }}", "prod-workers-abc-xxxxx"),
        ("{{.random}}}}", "xxxxx}}"),
        ("a {{- .random -}} b", "axxxxxb"),
        ("a {{- /* first */ -}} {{ .random }} b", "axxxxx b"),
        ("{{/* no word of it */}}{{ .random }}", "xxxxx"),
        ('{{ printf "%.3s-%s" .machineSet.name .random }}', "wor-xxxxx"),
        ("{{ printf `100%%%s` .random }}", "100%xxxxx"),
        ('{{ "a" }}{{ printf "%s" "b" }}{{ .random }}', "abxxxxx"),
        ("{{ slice .machineSet.name 0 7 }}-{{ .random }}", "workers-xxxxx"),
        ("{{ slice .machineSet.name 8 }}-{{ .random }}", "abc-xxxxx"),
        ('{{ .cluster.name | printf "%s-%s" .random }}', "xxxxx-prod"),
        ('{{ slice .machineSet.name 1\n5|printf "%.2s" | printf "%s%s" "a" -}} b', "aorb"),
    ],
)
def test_a_template_is_filled_in(template: str, name: str) -> None:
    assert named(template) == name


def test_a_long_name_is_cut_and_ends_at_random() -> None:
    assert named("{{ .cluster.name }}-{{ .random }}", "c" * 70) == "c" * 58 + "xxxxx"
    assert named("{{ .cluster.name }}", "c" * 63) == "c" * 63


def test_two_machines_differ() -> None:
    rng = Rng(1)
    first, second = (machine_name("{{ .random }}", "c", "s", rng.name_suffix) for _ in range(2))
    assert first != second
    assert len(first) == len(second) == 5


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("{{ .foo }}", 'at <.foo>: map has no entry for key "foo"'),
        ("{{ .cluster.id }}", 'at <.cluster.id>: map has no entry for key "id"'),
        ("{{ slice .random 6 }}", "at <slice .random 6>: error calling slice: index out of range: 6"),
        ("{{ slice .random 3 2 }}", "at <slice .random 3 2>: error calling slice: invalid slice index: 3 > 2"),
    ],
)
def test_a_missing_value_is_an_error_in_upstreams_words(template: str, error: str) -> None:
    with pytest.raises(NameTemplateError) as caught:
        named(template)
    assert str(caught.value).endswith(error)


@pytest.mark.parametrize(
    "action",
    [
        *("{{", "{{ .random", "{{ }}", "{{ .a-b }}", "{{ /* a */ }}", "{{-.random }}", "{{ .random-}}", "{{ .random .random }}"),
        *("{{ upper .random }}", "{{ range . }}", "{{ if .random }}", "{{ $x := 1 }}", "{{ . }}", "{{ 3 }}", "{{ (.random) }}"),
        *("{{ slice .random 0 1 2 }}", "{{ slice .random 08 }}", "{{ slice .random }}", "{{ .random | slice 1 }}"),
        *('{{ printf "%s" }}', '{{ printf "%d" .random }}', '{{ printf "%s" .random .random }}', "{{ printf .random }}"),
        *('{{ printf "%s" 3 }}', '{{ .random | printf "a" }}', '{{ "\\x41" }}', '{{ printf "%q" .random }}'),
    ],
)
def test_the_rest_of_the_language_is_refused_by_an_error_that_names_the_field(action: str) -> None:
    with pytest.raises(NameTemplateError) as caught:
        named("a" + action)
    assert f": {action} is not supported in machineNaming.template, which takes text" in str(caught.value)


def test_a_part_that_is_no_text_is_refused() -> None:
    with pytest.raises(NameTemplateError, match=r"\.cluster is not supported in machineNaming\.template"):
        named("{{ .cluster }}")
