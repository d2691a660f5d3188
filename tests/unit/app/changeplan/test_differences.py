"""Differences are shown field by field, without secrets."""

from __future__ import annotations

import pytest

from remuda.app.changeplan.differences import of_objects, of_plans
from remuda.app.changeplan.result import FieldChange
from remuda.provisioning.plans.plan import File, Instruction, Plan, Probe

CONFIG = "/etc/rancher/remuda/config.yaml.d/50-rancher.yaml"


def plan(version: str = "v1.34.1-remuda1", config: str = "{}", **files: str) -> Plan:
    env = ("RESTART_STAMP=abc", "DRAIN_HASH=def", "HTTP_PROXY=http://user:pass@proxy")
    listed = [File.of(CONFIG, config), *(File.of(f"/{name}", content) for name, content in files.items())]
    return Plan(tuple(listed), (Instruction("install", f"host/rancher/installer:{version}", env),))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"spec": {"a": 1}}, {"spec": {"a": 1}}, []),
        ({"spec": {"a": None, "b": {}}}, {"spec": {"c": []}}, []),
        ({"spec": {"a": 1}}, {"spec": {"a": 2}}, [FieldChange("spec.a", "1", "2")]),
        ({"spec": {}}, {"spec": {"a": {"b": "x"}}}, [FieldChange("spec.a.b", "", "x")]),
        (
            {"spec": {"pools": [{"name": "w", "quantity": 2}]}},
            {"spec": {"pools": [{"name": "w", "quantity": 3}]}},
            [FieldChange("spec.pools.[w].quantity", "2", "3")],
        ),
        ({"status": {"a": 1}}, {"status": {"a": 2}}, []),
        ({"metadata": {"resourceVersion": "1"}}, {"metadata": {"resourceVersion": "2"}}, []),
        ({"metadata": {}}, {"metadata": {"labels": {"x": "y"}}}, [FieldChange("metadata.labels.x", "", "y")]),
        ({"spec": {}}, {"spec": {"accessKey": "abc"}}, [FieldChange("spec.accessKey", "", "(not shown)")]),
    ],
)
def test_the_fields_of_an_object_that_differ(before: dict, after: dict, expected: list[FieldChange]) -> None:
    assert list(of_objects(before, after)) == expected


def test_a_plan_of_another_version() -> None:
    assert of_plans(plan(), plan("v1.34.2-remuda1")) == (FieldChange("version", "v1.34.1+remuda1", "v1.34.2+remuda1"),)


def test_a_plans_configuration_and_files() -> None:
    before = plan(config='{"token": "one", "kubelet-arg": ["a=1"]}', old="x", kept="y")
    after = plan(config='{"token": "two", "kubelet-arg": ["a=2"]}', new="x", kept="z")
    assert of_plans(before, after) == (
        FieldChange("config.kubelet-arg", '["a=1"]', '["a=2"]'),
        FieldChange("config.token", "(not shown)", "(not shown)"),
        FieldChange("file /kept", "as before", "changed"),
        FieldChange("file /new", "", "present"),
        FieldChange("file /old", "present", ""),
    )


def test_variables_are_named_without_their_values_and_stamps_are_no_variables() -> None:
    before = plan()
    (install,) = before.instructions
    after = Plan(before.files, (Instruction("install", install.image, ("RESTART_STAMP=x", "HTTP_PROXY=other")),))
    assert of_plans(before, after) == (FieldChange("variable HTTP_PROXY", "as before", "changed"),)


def test_instructions_and_probes_by_name() -> None:
    before = plan()
    after = Plan(before.files, (*before.instructions, Instruction("rotate")), (), {"etcd": Probe("etcd")})
    assert of_plans(before, after) == (FieldChange("instruction rotate", "", "present"), FieldChange("probe etcd", "", "present"))
