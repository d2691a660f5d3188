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
        ("a {{- .random -}} b", "axxxxxb"),
        ("{{/* no word of it */}}{{ .random }}", "xxxxx"),
        ('{{ printf "%.3s-%s" .machineSet.name .random }}', "wor-xxxxx"),
        ("{{ slice .machineSet.name 0 7 }}-{{ .random }}", "workers-xxxxx"),
        ('{{ if eq .cluster.name "prod" "live" }}p{{ else }}t{{ end }}-{{ .random }}', "p-xxxxx"),
        ("{{ if and .random (ne .cluster.name `prod`) }}a{{ else if .random }}b{{ else }}c{{ end }}", "b"),
        ('{{ .cluster.name | printf "%s-%s" .random }}', "xxxxx-prod"),
        ("{{ len .cluster.name }}{{ not .random }}{{ print 1 2 }}", "4false1 2"),
        ('{{ index . "cluster" "name" }}{{ printf "%03d|%-3s|%x|%t|%%" 7 "a" 255 true }}', "prod007|a  |ff|true|%"),
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
    "template", ["{{ .foo }}", "{{", "{{ upper .random }}", "{{ range . }}{{ end }}", "{{ slice .random 6 }}"]
)
def test_what_can_not_be_filled_in_says_why(template: str) -> None:
    with pytest.raises(NameTemplateError):
        named(template)
