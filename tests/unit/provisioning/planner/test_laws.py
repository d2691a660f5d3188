"""What holds for the planner whatever it is shown, and however a cluster got there."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.kube.clock import rfc3339
from remuda.kube.waits import Code
from remuda.provisioning import well_known
from remuda.provisioning import well_known as keys
from remuda.provisioning.planner.concurrency import limit
from remuda.provisioning.planner.decision import Decision
from remuda.provisioning.planner.drain import is_in_drain
from remuda.provisioning.planner.etcd_liveness import FRESH
from remuda.provisioning.planner.machine_health import is_member_up, serves
from remuda.provisioning.planner.managesystemagent import AgentUpdate, UpdateNote
from remuda.provisioning.planner.snapshot import AgentProgram, ClusterSnapshot, Condition, Join, Machine, PlanNode
from remuda.provisioning.plans.agent_report import AgentReport
from tests.scenarios.soaking import SOAK

from . import world
from .world import NEXT, NOW, VERSION, World, applied, decide, named, render, snapshot, url, with_node, written

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0 if SOAK else 300)]


def many(few: int) -> settings:
    """So many examples, and twenty times as many under `make soak`."""
    return settings(max_examples=few * (20 if SOAK else 1), deadline=None)


FEW = many(80)

ROLES = st.sampled_from(["e", "c", "w", "ec", "ecw", "cw"])
CONCURRENCY = st.sampled_from(["", "1", "2", "50%", "0"])
DRAIN = st.sampled_from([{}, {"enabled": True}, {"enabled": False, "preDrainHooks": [{"annotation": "hook"}]}])
OPTIONS = '{"enabled":true}'


@st.composite
def machines(draw: st.DrawFn, name: str) -> Machine:
    """Anything that could ever be found: marks on wrong machines, half a drain, plans of another version, none at all."""
    one = world.machine(name, draw(ROLES))
    marks = {well_known.INIT_NODE: "true"} if draw(st.integers(0, 3)) == 0 else {}
    notes: dict[str, str | None] = {}
    if draw(st.booleans()):
        notes[well_known.JOIN_URL] = url(name)
    if draw(st.booleans()):
        notes[well_known.JOINED_TO] = draw(st.sampled_from(["", url("m0"), url("m1"), "https://gone:9345"]))
    for key in (well_known.DRAIN_OPTIONS, well_known.DRAIN_DONE, well_known.UNCORDON, well_known.PRE_DRAIN):
        if draw(st.integers(0, 5)) == 0:
            notes[key] = OPTIONS
    if draw(st.integers(0, 5)) == 0:
        notes[keys.PLAN_FAILURE] = draw(st.sampled_from(["garbled", f'{{"attempts":2,"revision":1,"retryAt":"{rfc3339(NOW)}"}}']))
    notes[well_known.PLAN_UPDATED] = draw(st.sampled_from([rfc3339(NOW - 5), rfc3339(NOW - 5000), None]))
    one = one.with_plan_metadata(marks, {key: value for key, value in notes.items() if value is not None})
    one = with_node(one, draw(nodes(one)))
    if draw(st.booleans()):
        one = world.joined(one, draw(st.sampled_from([VERSION, NEXT])))
    gone = draw(st.sampled_from([None, None, None, NOW]))
    return replace(
        one,
        # A machine that goes loses its plan secret before itself.
        secret=None if gone and draw(st.booleans()) else one.secret,
        deleted_at=gone,
        phase=draw(st.sampled_from(["Running", "Running", "Failed"])),
        infrastructure_ready=draw(st.sampled_from([True, True, False])),
        non_ready=draw(st.sampled_from(["", "", "node is not ready"])),
    )


@st.composite
def nodes(draw: st.DrawFn, of: Machine) -> PlanNode | None:
    if draw(st.integers(0, 3)) == 0:
        return None
    told = draw(st.sampled_from([Join(init=True), Join(server=url("m0"))]))
    made = [render(snapshot(spec={"kubernetesVersion": version}), of, told) for version in (VERSION, NEXT)]
    given_, before = draw(st.sampled_from(made)), draw(st.sampled_from([None, *made]))
    state = draw(st.sampled_from(["", "pending", "in-progress", "succeeded", "failed"]))
    in_sync = state == "succeeded" or (state in ("", "pending") and given_ == before)
    healthy = draw(st.sampled_from([True, True, False]))
    probes = dict.fromkeys(given_.probes, healthy) if draw(st.booleans()) else {}
    return PlanNode(given_, before, state, draw(st.integers(0, 2)), in_sync, state == "failed", 1, healthy, probes)


@st.composite
def pictures(draw: st.DrawFn) -> ClusterSnapshot:
    members = [draw(machines(f"m{index}")) for index in range(draw(st.integers(1, 6)))]
    strategy = {"controlPlaneConcurrency": draw(CONCURRENCY), "workerConcurrency": draw(CONCURRENCY)}
    strategy |= {"controlPlaneDrainOptions": draw(DRAIN), "workerDrainOptions": draw(DRAIN)}
    begun = draw(st.booleans())
    return snapshot(
        *members,
        spec={"kubernetesVersion": NEXT, "upgradeStrategy": strategy},
        agent_connected=draw(st.booleans()),
        initialized=begun or None,
        conditions=(Condition("Bootstrapped", "True"),) if begun else (),
    )


@st.composite
def troubled(draw: st.DrawFn) -> ClusterSnapshot:
    """A cluster that was well, in the middle of an upgrade, with a few things gone wrong."""
    drain = draw(DRAIN)
    strategy = {"controlPlaneConcurrency": draw(CONCURRENCY), "workerConcurrency": draw(CONCURRENCY)}
    strategy |= {"controlPlaneDrainOptions": drain, "workerDrainOptions": drain}
    roles = draw(
        st.sampled_from([["ecw"] * 3, ["ec"] * 3 + ["w"] * 3, ["e"] * 3 + ["c"] * 3 + ["w"] * 2, ["ec", "c", "c", "w", "w"]])
    )
    picture = world.running(*((f"m{index}", role) for index, role in enumerate(roles)), spec={"upgradeStrategy": strategy})
    picture = world.with_spec(picture, kubernetesVersion=NEXT)
    upgraded = draw(st.integers(0, len(roles)))
    for index, member in enumerate(picture.machines):
        if index < upgraded:
            picture = world.with_machine(picture, member.name, lambda m, now=picture: _upgraded(now, m))
        trouble = draw(st.sampled_from(TROUBLES))
        picture = world.with_machine(picture, member.name, lambda m, trouble=trouble: _in_trouble(m, trouble))
    if draw(st.booleans()):
        return picture
    said = [(draw(st.sampled_from(AGENTS)), draw(st.sampled_from(UPDATES))) for _ in picture.machines]
    members = tuple(_with_agent(m, *words) for m, words in zip(picture.machines, said, strict=True))
    return replace(picture, agent=AGENT, machines=members)


AGENT = AgentProgram.of(b"the server's agent")
OTHER = AgentReport("0" * 64, "/successors")
AGENTS = [None, OTHER, OTHER, replace(OTHER, checksum=AGENT.checksum), replace(OTHER, refused=AGENT.checksum, reason="no")]
UPDATES = [
    None,
    None,
    *(UpdateNote(AGENT.checksum, True, at) for at in (NOW, NOW - 5000, NOW + 5000)),
    *(UpdateNote(AGENT.checksum, False, NOW - 5000, attempts) for attempts in (1, 2, 3)),
    UpdateNote("f" * 64, True, NOW),
]


def _with_agent(member: Machine, agent: AgentReport | None, note: UpdateNote | None) -> Machine:
    """With the agent that it says it has, and one in its plan if it was given one."""
    if note is not None:
        member = member.with_plan_metadata({}, {keys.AGENT_UPDATE: note.text()})
    node = member.node
    if node is None:
        return member
    if note is not None and note.offered:
        given = AgentUpdate(replace(AGENT, checksum=note.checksum).file(OTHER.successors)).plan(node.plan)
        node = replace(node, plan=given, applied=given if node.in_sync else node.applied)
    return with_node(member, replace(node, agent=agent))


TROUBLES = ["", "", "", "", "failed", "pending", "in-progress", "unhealthy", "draining", "drained", "going", "planless", "sick"]


def _upgraded(picture: ClusterSnapshot, member: Machine) -> Machine:
    told = Join(init=True) if member.is_init else Join(server=url("m0"))
    return world.joined(with_node(member, world.done(render(picture, member, told))), NEXT)


def _in_trouble(member: Machine, trouble: str) -> Machine:
    node = member.node
    assert node is not None
    if trouble == "failed":
        return with_node(member, replace(node, state="failed", failed=True, in_sync=False))
    if trouble in ("pending", "in-progress"):
        return with_node(member, replace(node, state=trouble, in_sync=False, probes={}))
    if trouble == "unhealthy":
        return with_node(member, replace(node, probes=dict.fromkeys(node.plan.probes, False)))
    if trouble in ("draining", "drained"):
        done = {well_known.DRAIN_DONE: OPTIONS} if trouble == "drained" else {}
        return member.with_plan_metadata({}, {well_known.DRAIN_OPTIONS: OPTIONS, **done})
    if trouble == "planless":
        return with_node(member, None)
    if trouble == "going":
        return replace(member, deleted_at=NOW)
    return replace(member, non_ready="node is not ready" if trouble else "")


def marked(picture: ClusterSnapshot) -> list[str]:
    return [member.name for member in picture.machines if member.is_init]


def check(before: ClusterSnapshot, decision: Decision) -> ClusterSnapshot:
    """What must hold of any decision; gives what comes of it."""
    after = applied(before, decision)
    assert len(marked(after)) <= max(1, len(marked(before)))
    _check_marks(before, decision)
    _check_quorum(before, decision)
    _check_turns(before, decision)
    for name in decision.secrets:
        assert named(before, name).secret is not None
    assert not any(named(before, name).deleting for name in written(decision))
    assert decision.applied or decision.waits
    assert decision.revisit_at is not None and decision.revisit_at > before.now
    assert all(wait.since and wait.evidence for wait in decision.waits)
    return after


def _check_marks(before: ClusterSnapshot, decision: Decision) -> None:
    """Marks are taken before one is given, and no plan is written as long as they move."""
    marks = [change.labels[well_known.INIT_NODE] for change in decision.secrets.values() if well_known.INIT_NODE in change.labels]
    assert marks == sorted(marks, key=lambda mark: mark is not None)
    assert sum(mark is not None for mark in marks) <= 1
    if marks:
        assert not written(decision)
        assert len(marked(applied(before, decision))) == 1


def _disturbed(before: ClusterSnapshot, decision: Decision) -> list[Machine]:
    """Machines that go on with a plan which may restart them."""
    found = []
    for name, change in decision.secrets.items():
        member = named(before, name)
        if member.node is None or not (change.retry or change.plan is not None):
            continue
        minor = change.plan is not None and change.plan.instructions == member.node.plan.instructions
        if not minor:
            found.append(member)
    return found


def _check_quorum(before: ClusterSnapshot, decision: Decision) -> None:
    """At most one member that is up is touched, and a majority stays up without it, or else nobody was down."""
    members = [m for m in before.machines if m.is_etcd and m.node is not None and m.node.applied is not None]
    up = {member.name for member in members if is_member_up(member)}
    struck = {member.name for member in _disturbed(before, decision)} & up
    if not struck:
        return
    assert len(struck) == 1
    majority = len(members) // 2 + 1
    assert len(up - struck) >= majority or len(up) == len(members)


@many(60)
@given(
    st.sampled_from([["ecw"] * 3, ["ec"] * 3 + ["w"], ["e"] * 3 + ["c", "w"], ["ecw"] * 5, ["ecw"] * 2]),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40)), min_size=1, max_size=2),
    st.sampled_from([1.0, 5.0, 13.0]),
    DRAIN,
)
def test_a_host_that_died_unnoticed_costs_no_quorum(
    shape: list[str], deaths: list[tuple[int, int]], seconds: float, drain: dict[str, object]
) -> None:
    """Hosts die at any moment of an upgrade. Their nodes look well for as long as anybody looks; still no member is restarted
    that etcd needs, from the moment on at which it could be known. When they are back, all goes on."""
    drain = {key: value for key, value in drain.items() if key == "enabled"}
    spec = {"upgradeStrategy": {"controlPlaneDrainOptions": drain}}
    picture = world.running(*((f"m{index}", roles) for index, roles in enumerate(shape)), spec=spec)
    place = World(world.with_spec(picture, kubernetesVersion=NEXT), seconds=seconds)
    died: dict[str, float] = {}
    for step in range(120):
        died.update({f"m{who}": place.picture.now for who, when in deaths if when == step and who < len(shape)})
        place.dead = set(died)
        before, decision = place.picture, place.look()
        check(before, decision)
        dead = {name for name, at in died.items() if before.now - at > FRESH}
        members = {m.name for m in before.machines if m.is_etcd and m.node is not None and m.node.applied is not None}
        for struck in {member.name for member in _disturbed(before, decision) if serves(member)} & members - set(died):
            left = members - {struck} - dead
            assert len(left) >= min(len(members) // 2 + 1, len(members) - 1), (struck, dead)
        assert decision.applied or decision.waits
        place.act()
    place.dead = set()
    for _ in range(250):
        decision = place.look()
        if decision.applied:
            return
        place.act()
    raise AssertionError([f"{wait.subject.name}: {wait.code} {wait.evidence}" for wait in decision.waits])


def _check_turns(before: ClusterSnapshot, decision: Decision) -> None:
    """No drain begins beyond the limit, whoever drains already."""
    strategy = before.control_plane.spec.get("upgradeStrategy") or {}
    servers = [m for m in before.machines if not m.deleting and m.is_control_plane]
    workers = [m for m in before.machines if not m.deleting and m.is_only_worker]
    for members, of in ((servers, "controlPlane"), (workers, "worker")):
        most = limit(strategy.get(f"{of}Concurrency") or "", len(members))
        begun = {m.name for m in members if _begins_drain(m, decision)}
        draining = {m.name for m in members if is_in_drain(m)} | begun
        # Those with etcd go one by one, whatever the limit; they come before the others do.
        assert not begun or most is None or len(draining) <= max(most, 1)


def _begins_drain(member: Machine, decision: Decision) -> bool:
    change = decision.secrets.get(member.name)
    return bool(change and change.annotations.get(well_known.DRAIN_OPTIONS)) and not is_in_drain(member)


@FEW
@given(st.one_of(pictures(), troubled(), troubled()))
def test_no_picture_leads_to_harm(picture: ClusterSnapshot) -> None:
    check(picture, decide(picture))


@FEW
@given(st.one_of(pictures(), troubled(), troubled()))
def test_what_was_decided_is_not_decided_again(picture: ClusterSnapshot) -> None:
    """Without any act of others, a few looks come to rest."""
    for _ in range(8):
        decision = decide(picture)
        assert decision == decide(picture)
        picture = check(picture, decision)
        if not decision.writes:
            return
    assert not decide(picture).writes


@FEW
@given(st.one_of(pictures(), troubled()), st.integers(0, 1000))
def test_the_order_of_machines_is_no_matter(picture: ClusterSnapshot, seed: int) -> None:
    shuffled = list(picture.machines)
    random.Random(seed).shuffle(shuffled)
    one, other = decide(picture), decide(replace(picture, machines=tuple(shuffled)))
    assert one == other and list(one.secrets) == list(other.secrets)


SHAPES = st.sampled_from(
    [["ecw"], ["ecw"] * 3, ["ec", "ec", "ec", "w", "w"], ["e", "c", "w"], ["e", "e", "e", "c", "c", "w", "w", "w"]]
)


@many(50)
@given(
    SHAPES,
    CONCURRENCY,
    DRAIN,
    st.dictionaries(st.integers(0, 7), st.integers(1, 3), max_size=2),
    st.sampled_from(["up", "fresh"]),
)
def test_every_cluster_gets_there(
    shape: list[str], at_once: str, drain: dict[str, object], fails: dict[int, int], begin: str
) -> None:
    """Hosts that fail a few times and then heal, any concurrency, with and without drains."""
    drain = {key: value for key, value in drain.items() if key == "enabled"}
    strategy = {"controlPlaneConcurrency": at_once, "workerConcurrency": at_once}
    strategy |= {"controlPlaneDrainOptions": drain, "workerDrainOptions": drain}
    members = [(f"m{index}", roles) for index, roles in enumerate(shape)]
    if begin == "up":
        picture = world.with_spec(world.running(*members, spec={"upgradeStrategy": strategy}), kubernetesVersion=NEXT)
    else:
        fresh = [world.machine(name, roles) for name, roles in members]
        picture = snapshot(*fresh, spec={"upgradeStrategy": strategy, "kubernetesVersion": NEXT}, tokens=None)
    place = World(picture, {f"m{index}": times for index, times in fails.items() if index < len(shape)}, seconds=20.0)
    inits: set[str] = set()
    for _ in range(250):
        before = place.picture
        _give_etcd_only_init_its_url(place)
        check(place.picture, decide(place.picture))
        decision = place.look()
        inits |= {m.name for m in place.picture.machines if m.node is not None and m.joined_to == ""}
        if decision.applied:
            break
        place.act()
        assert place.picture != before
    assert decision.applied, [str(wait.evidence) for wait in decision.waits]
    assert len(inits) == 1
    assert all(m.kubelet_version == NEXT.split("+")[0] for m in place.picture.machines)
    assert not any(is_in_drain(m) or keys.PLAN_FAILURE in m.plan_annotations for m in place.picture.machines)
    assert not any(change.plan or change.retry for change in decide(place.picture).secrets.values())


def _give_etcd_only_init_its_url(place: World) -> None:
    """Its periodic instructions tell it; the world's hosts have none."""
    for member in place.picture.machines:
        if member.is_init and member.is_only_etcd and member.node and member.node.in_sync and not member.join_url:
            note = {well_known.JOIN_URL: url(member.name)}
            place.picture = world.with_machine(
                place.picture, member.name, lambda m, note=note: m.with_plan_metadata({}, dict(note))
            )


@many(30)
@given(st.integers(0, 2), st.sampled_from([["ecw"] * 3, ["ec", "ec", "ec", "w", "w"]]), st.booleans())
def test_a_machine_that_goes_leaves_one_cluster(victim: int, shape: list[str], upgrade: bool) -> None:
    picture = world.running(*((f"m{index}", roles) for index, roles in enumerate(shape)))
    if upgrade:
        picture = world.with_spec(picture, kubernetesVersion=NEXT)
    place = World(world.with_machine(picture, f"m{victim}", lambda m: replace(m, deleted_at=NOW)))
    for _ in range(120):
        check(place.picture, decide(place.picture))
        decision = place.look()
        if decision.applied:
            break
        place.act()
    assert decision.applied
    left = [m for m in place.picture.machines if not m.deleting]
    assert [m.name for m in left if m.is_init] == marked(place.picture)
    assert all(m.joined_to != url(f"m{victim}") for m in left)
    assert sum(m.joined_to == "" for m in left) == 1


@many(40)
@given(st.one_of(pictures(), troubled(), troubled()))
def test_whoever_waits_says_for_what(picture: ClusterSnapshot) -> None:
    """Each machine that is not done has a wait of its own or a word of its condition."""
    decision = decide(picture)
    if decision.error or any(
        wait.code in (Code.ROLES, Code.RESTORE, Code.INIT_NODE, Code.DELETION) for wait in decision.waits[:1]
    ):
        return
    after = applied(picture, decision)
    for member in after.machines:
        if member.node is None and not member.deleting and not decision.applied:
            assert any(wait.subject.name == member.name for wait in decision.waits), member.name


NEEDS_SOMEBODY = {Code.ROLES, Code.RESTORE, Code.INIT_NODE, Code.DELETION, Code.LAST_ETCD}


@many(60)
@given(troubled(), st.booleans())
def test_hosts_that_do_as_they_are_told_end_all_trouble(picture: ClusterSnapshot, stubborn: bool) -> None:
    """Whatever was under way: nobody waits for each other. What a user must do is said at once."""
    hook = {"controlPlaneDrainOptions": {"enabled": True}, "workerDrainOptions": {"enabled": True}}
    strategy = {**picture.control_plane.spec["upgradeStrategy"], **hook}
    place = World(world.with_spec(picture, upgradeStrategy=strategy), stubborn=stubborn, seconds=15.0)
    for _ in range(250):
        check(place.picture, decide(place.picture))
        decision = place.look()
        if decision.applied or decision.waits[0].code in NEEDS_SOMEBODY:
            return
        place.act()
        place.picture = replace(place.picture, machines=tuple(_healed(member) for member in place.picture.machines))
    raise AssertionError([f"{wait.subject.name}: {wait.code} {wait.evidence}" for wait in decision.waits])


def _healed(member: Machine) -> Machine:
    """Nodes that were not ready come back."""
    return replace(member, non_ready="")


@many(50)
@given(SHAPES, st.lists(st.integers(0, 3), min_size=5, max_size=40), st.booleans())
def test_a_death_between_any_two_writes_changes_nothing(shape: list[str], deaths: list[int], going: bool) -> None:
    """Of each decision only the first few secrets are written, and no status; then all begins anew."""
    members = [(f"m{index}", roles) for index, roles in enumerate(shape)]
    picture = snapshot(*(world.machine(name, roles) for name, roles in members), spec={"kubernetesVersion": NEXT})
    place = World(picture, seconds=20.0)
    for number in range(250):
        _give_etcd_only_init_its_url(place)
        decision = decide(place.picture)
        check(place.picture, decision)
        survives = deaths[number] if number < len(deaths) else None
        if survives is None and decision.applied:
            break
        if going and number == 30 and shape == ["ecw"] * 3:
            place.picture = world.with_machine(place.picture, "m0", lambda m: replace(m, deleted_at=NOW))
            continue
        place.picture = applied(place.picture, decision if survives is None else _cut(decision, survives))
        place.act()
        assert len(marked(place.picture)) <= 1
    assert decision.applied
    assert sum(m.joined_to == "" for m in place.picture.machines if not m.deleting) == 1


def _cut(decision: Decision, after: int) -> Decision:
    return Decision(secrets=dict(list(decision.secrets.items())[:after]), create_tokens=decision.create_tokens)
