"""A plan's bytes: the original's members in the original's order, empty ones left out, the same for the same plan."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.provisioning.plans import plan as plans
from remuda.provisioning.plans.plan import File, HttpGet, Instruction, PeriodicInstruction, Plan, PlanError, Probe

FULL = Plan(
    files=(File.of("/etc/a", "hi", permissions="0600", dynamic=True, minor=True),),
    instructions=(Instruction("install", "i:v1", ("A=1",), ("-c", "run.sh"), "sh", saveOutput=True),),
    periodicInstructions=(PeriodicInstruction("etcd-name", args=("-c", "cat x"), command="sh", periodSeconds=600),),
    probes={
        "kubelet": Probe(
            initialDelaySeconds=1,
            timeoutSeconds=5,
            successThreshold=1,
            failureThreshold=5,
            httpGet=HttpGet("http://localhost:10248/healthz"),
        )
    },
)


def test_a_plan_is_written_in_the_originals_order_without_empty_members() -> None:
    assert plans.encode(FULL) == (
        b'{"files":[{"content":"aGk=","path":"/etc/a","permissions":"0600","dynamic":true,"minor":true}],'
        b'"instructions":[{"name":"install","image":"i:v1","env":["A=1"],"args":["-c","run.sh"],"command":"sh","saveOutput":true}],'
        b'"periodicInstructions":[{"name":"etcd-name","args":["-c","cat x"],"command":"sh","periodSeconds":600}],'
        b'"probes":{"kubelet":{"initialDelaySeconds":1,"timeoutSeconds":5,"successThreshold":1,"failureThreshold":5,'
        b'"httpGet":{"url":"http://localhost:10248/healthz"}}}}'
    )


def test_an_empty_plan_is_an_empty_object() -> None:
    assert plans.encode(Plan()) == b"{}"


def test_shell_signs_are_escaped_as_go_does() -> None:
    assert plans.encode(Plan(error="a < b && c > d\u2028")) == b'{"error":"a \\u003c b \\u0026\\u0026 c \\u003e d\\u2028"}'


def test_probes_are_written_by_name() -> None:
    one = Plan(probes={"b": Probe(timeoutSeconds=1), "a": Probe(timeoutSeconds=2)})
    other = Plan(probes={"a": Probe(timeoutSeconds=2), "b": Probe(timeoutSeconds=1)})
    assert plans.encode(one) == plans.encode(other)
    assert list(json.loads(plans.encode(one))["probes"]) == ["a", "b"]


def test_nulls_and_unknown_members_of_another_writer_are_read() -> None:
    found = plans.decode(b'{"files":null,"instructions":[{"name":"x","env":null,"later":1}],"probes":null,"new":{}}')
    assert found == Plan(instructions=(Instruction("x"),))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"files":[1]}', b'{"files":[{"path":7}]}', b"\xff"])
def test_what_is_no_plan_is_refused(data: bytes) -> None:
    with pytest.raises(PlanError):
        plans.decode(data)


def test_a_files_data_is_what_the_host_gets() -> None:
    assert File.of("/a", b"\x00\xff").data == b"\x00\xff"
    with pytest.raises(PlanError, match="/a is no base64"):
        _ = File("!", "/a").data


def test_owner_and_action_of_a_file_do_not_make_another_plan() -> None:
    assert plans.same(Plan(files=(File("YQ==", "/a"),)), Plan(files=(File("YQ==", "/a", uid=5, action="delete"),)))
    assert not plans.same(Plan(files=(File("YQ==", "/a"),)), Plan(files=(File("YQ==", "/a", permissions="0600"),)))


MINOR, MAJOR = File("YQ==", "/minor", minor=True), File("YQ==", "/major")
OTHER_MINOR = File("Yg==", "/minor", minor=True)


@pytest.mark.parametrize(
    ("old", "new", "minor"),
    [
        (Plan(files=(MINOR, MAJOR)), Plan(files=(MINOR, MAJOR)), False),
        (Plan(files=(MINOR, MAJOR)), Plan(files=(OTHER_MINOR, MAJOR)), True),
        (Plan(files=(MAJOR,)), Plan(files=(MINOR, MAJOR)), True),
        (Plan(files=(MINOR, MAJOR)), Plan(files=(MAJOR,)), True),
        (Plan(files=(MINOR, MAJOR)), Plan(files=(OTHER_MINOR,)), False),
        (Plan(files=(MINOR,)), Plan(files=(OTHER_MINOR,), error="x"), False),
        (Plan(files=(File("YQ==", "/minor"),)), Plan(files=(OTHER_MINOR,)), False),
        (Plan(files=(MINOR,)), Plan(files=(OTHER_MINOR,), instructions=(Instruction("x"),)), False),
    ],
)
def test_a_change_is_minor_when_only_minor_files_differ(old: Plan, new: Plan, minor: bool) -> None:
    assert plans.only_minor(old, new) is minor


def test_the_last_word_of_an_environment_counts() -> None:
    assert plans.variable(Instruction(env=("A=1", "AB=2", "A=3=4")), "A") == "3=4"
    assert plans.variable(None, "A") == ""
    assert plans.instruction(FULL, "install") is FULL.instructions[0]


TEXTS = st.text(max_size=8)
FILES = st.builds(
    File, TEXTS, TEXTS, TEXTS, st.integers(-1, 9), st.integers(-1, 9), st.booleans(), TEXTS, st.booleans(), st.booleans()
)
INSTRUCTIONS = st.builds(
    Instruction, TEXTS, TEXTS, st.lists(TEXTS, max_size=3).map(tuple), st.lists(TEXTS, max_size=3).map(tuple), TEXTS
)
PLANS = st.builds(
    Plan,
    st.lists(FILES, max_size=3).map(tuple),
    st.lists(INSTRUCTIONS, max_size=3).map(tuple),
    st.just(()),
    st.dictionaries(TEXTS, st.builds(Probe, TEXTS, st.integers(0, 9), httpGet=st.builds(HttpGet, TEXTS)), max_size=3),
    TEXTS,
)


@settings(max_examples=50, deadline=None)
@given(PLANS)
def test_what_is_written_is_read_back(plan: Plan) -> None:
    assert plans.decode(plans.encode(plan)) == plan
    assert plans.encode(plans.decode(plans.encode(plan))) == plans.encode(plan)
    assert plans.same(plan, plan)
    assert not plans.only_minor(plan, plan)
