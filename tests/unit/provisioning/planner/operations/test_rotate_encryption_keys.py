"""Another encryption key: by one command, or in stages; which servers restart, and when it fails."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from remuda.kube.waits import Actor, Code
from remuda.provisioning.planner.operations.rotate_encryption_keys import is_one_step
from remuda.provisioning.planner.snapshot import ClusterSnapshot, Condition, Machine, Periodic
from remuda.provisioning.plans.plan import Instruction

from ..world import NEXT, World, decide, heard, named, running, with_machine, with_node, with_spec, written

MEMBERS = (("a", "ec"), ("b", "ec"), ("c", "ec"), ("w", "w"))
SPLIT = (("a", "e"), ("b", "e"), ("p", "c"), ("q", "c"), ("w", "w"))
ENCRYPTED = {"machineGlobalConfig": {"secrets-encryption": True}}
OLD, OURS = "v1.29.4+k3s1", "v1.34.1+remuda1"
STATUS = "secrets-encrypt-status"


def asked(*members: tuple[str, str], generation: int = 1, **spec: Any) -> ClusterSnapshot:
    picture = running(*(members or MEMBERS), spec={"rotateEncryptionKeys": {"generation": generation}, **ENCRYPTED, **spec})
    conditions = (*picture.control_plane.conditions, Condition("Ready", "True"))
    features = {"encryption-key-rotation": "2.0.0"}
    return replace(picture, control_plane=replace(picture.control_plane, conditions=conditions), features=features)


def task_of(machine: Machine) -> Instruction | None:
    assert machine.node is not None
    first = machine.node.plan.instructions[0]
    return first if first.name in ("RotateKeys", "RestartServer") else None


def words(task: Instruction) -> dict[str, str]:
    """The fields of the task, as the small renderer prints them."""
    inner = task.args[0].partition("(")[2].rstrip(")")
    return {key: value.strip("'") for key, _, value in (part.partition("=") for part in inner.split(", "))}


@dataclass
class Keys(World):
    """Servers with keys: a command makes a newer one on one server, a restart adopts the newest. `reloads`: without restarts.
    `slow` is for how many looks Secrets are still written."""

    newest: int = 0
    stage: str = "start"
    keys: dict[str, int] = field(default_factory=dict)
    slow: int = 0
    reloads: bool = False
    wrong: set[str] = field(default_factory=set)
    order: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)

    def until(self, *wanted: str, steps: int = 200) -> str:
        for _ in range(steps):
            self.picture = heard(self.picture)
            decision = self.look()
            self.seen.extend(wait.evidence for wait in decision.waits[:1])
            phase = self.picture.control_plane.rotate_encryption_keys_phase
            if phase in wanted:
                return phase
            for name in sorted(written(decision)):
                task = task_of(named(self.picture, name))
                if task is not None:
                    self.order.append(f"{words(task)['phase']} {name}")
            self.act()
        raise AssertionError((self.seen, self.order))

    def _acted(self, member: Machine) -> Machine:
        before = member.node
        member = super()._acted(member)
        task, node = task_of(member) if member.node else None, member.node
        if node is None or task is None or node.state != "succeeded":
            return member
        said = words(task)
        if before is not None and before.state != "succeeded":
            self._run(member.name, said)
            node = replace(node, output={**node.output, STATUS: self._status(member.name)})
        return with_node(member, replace(node, periodic={STATUS: Periodic(self._status(member.name))}))

    def _run(self, name: str, said: dict[str, str]) -> None:
        command = said.get("command")
        if command == "rotate-keys" or command == "prepare":
            self.newest += 1
        if command is not None:
            self.stage = "reencrypt_active" if command in ("rotate-keys", "reencrypt") else command
            self.newest += command in ("rotate", "reencrypt")
        self.keys[name] = self.newest
        if self.reloads:
            self.keys = {each.name: self.newest for each in self.picture.machines}

    def _status(self, name: str) -> str:
        if self.stage == "reencrypt_active":
            self.slow -= 1
            self.stage = self.stage if self.slow > 0 else "reencrypt_finished"
        servers = [each.name for each in self.picture.machines if each.is_control_plane]
        alike = all(self.keys.get(each, 0) == self.newest for each in servers)
        hashes = "All hashes match" if alike else "hash does not match between a and b"
        stage = "start" if name in self.wrong else self.stage
        lines = ("Encryption Status: Enabled", f"Current Rotation Stage: {stage}", f"Server Encryption Hashes: {hashes}", "")
        return "\n".join(lines)


def verdict(picture: ClusterSnapshot) -> Condition:
    found = picture.control_plane.condition("EncryptionKeysRotated")
    assert found is not None
    return found


def test_one_command_then_every_server_restarts() -> None:
    place = Keys(asked())
    assert place.until("Done", "Failed") == "Done", verdict(place.picture)
    assert place.order == ["Rotate a", "PostRotateRestart a", "PostRotateRestart b", "PostRotateRestart c"]
    assert verdict(place.picture).status == "True" and place.picture.control_plane.rotate_encryption_keys == {"generation": 1}
    assert not place.picture.control_plane.rotate_encryption_keys_leader


def test_the_status_counts_the_stages() -> None:
    place = Keys(asked(), slow=5)
    place.until("Done")
    assert any(text.startswith("rotating encryption keys, stage 1 of 2 (Rotate) on a: ") for text in place.seen)
    assert any("Secrets are written with the new key: reencrypt_active" in text for text in place.seen)
    assert any(text.startswith("rotating encryption keys, stage 2 of 2 (PostRotateRestart) on b") for text in place.seen)


def test_members_of_etcd_alone_restart_before_the_leader() -> None:
    place = Keys(asked(*SPLIT))
    place.until("Done")
    assert place.order == ["Rotate p", *(f"PostRotateRestart {name}" for name in ("a", "b", "p", "q"))]


def test_a_single_server_needs_no_restart() -> None:
    place = Keys(asked(("a", "ecw"), ("w", "w")))
    place.until("Done")
    assert place.order == ["Rotate a"]


def test_a_distribution_that_adopts_keys_needs_no_restart() -> None:
    place = Keys(asked(kubernetesVersion=OURS, machineGlobalConfig={}), reloads=True)
    place.until("Done")
    assert place.order == ["Rotate a"]


def test_a_second_rotation_works() -> None:
    place = Keys(asked())
    place.until("Done")
    for _ in range(30):
        place.picture = heard(place.picture)
        decision = place.look()
        place.act()
    assert decision.applied
    first = list(place.order)
    place.picture = with_spec(place.picture, rotateEncryptionKeys={"generation": 2})
    for _ in range(5):
        place.look()
    assert place.until("Done") == "Done" and place.picture.control_plane.rotate_encryption_keys == {"generation": 2}
    assert place.order != first and place.newest == 2


def staged(*members: tuple[str, str]) -> Keys:
    return Keys(asked(*members, kubernetesVersion=OLD))


def test_older_versions_rotate_in_three_steps_with_restarts() -> None:
    place = staged()
    assert place.until("Done", "Failed") == "Done", verdict(place.picture)
    steps = [("Prepare", "PostPrepareRestart"), ("Rotate", "PostRotateRestart"), ("Reencrypt", "PostReencryptRestart")]
    assert place.order == [
        entry for command, restart in steps for entry in (f"{command} a", *(f"{restart} {name}" for name in ("a", "b", "c")))
    ]
    assert any(text.startswith("rotating encryption keys, stage 4 of 6 (PostRotateRestart)") for text in place.seen)


def test_in_three_steps_members_of_etcd_restart_if_one_of_them_is_the_init_node() -> None:
    place = staged(*SPLIT)
    place.until("Done")
    assert place.order[:5] == ["Prepare p", *(f"PostPrepareRestart {name}" for name in ("a", "b", "p", "q"))]
    place = staged(("a", "ec"), ("b", "e"), ("c", "e"), ("w", "w"))
    place.until("Done")
    assert not any(name in ("b", "c") for _, name in (entry.split() for entry in place.order))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1.29.15+k3s1", False),
        ("v1.30.4+rke2r1", False),
        ("v1.30.5+k3s1", True),
        ("v1.31.0+k3s1", False),
        ("v1.31.1+rke2r1", True),
        ("v1.32.0+k3s1", True),
        ("v1.36.4+remuda1", True),
        ("v2.0.0+k3s1", True),
    ],
)
def test_the_versions_with_one_command(version: str, expected: bool) -> None:
    assert is_one_step(version) is expected


@pytest.mark.parametrize(
    ("changes", "features", "reason"),
    [
        (
            {"machineGlobalConfig": {}},
            {},
            "k3s does not encrypt Secrets unless machineGlobalConfig has `secrets-encryption: true`",
        ),
        ({"kubernetesVersion": OLD}, {"encryption-key-rotation": "1.0.0"}, f"{OLD} can not rotate encryption keys safely"),
        ({"kubernetesVersion": "v1.29.4+rke2r1"}, {}, "v1.29.4+rke2r1 can not rotate encryption keys safely"),
    ],
)
def test_clusters_that_can_not_are_refused(changes: dict[str, Any], features: dict[str, str], reason: str) -> None:
    picture = replace(with_spec(asked(), **changes), features=features)
    decision = decide(picture)
    assert decision.status["rotateEncryptionKeysPhase"] == "Failed"
    found = next(condition for condition in decision.conditions if condition.type == "EncryptionKeysRotated")
    assert found.status == "False" and f"generation 1: {reason}" in found.message


def test_an_entry_of_the_selector_config_counts() -> None:
    said = [{"config": {"secrets-encryption": "true"}}]
    place = Keys(asked(machineGlobalConfig={}, machineSelectorConfig=said))
    assert place.until("Done", "Failed") == "Done"


def test_it_waits_until_the_cluster_is_ready() -> None:
    picture = asked()
    unready = tuple(each for each in picture.control_plane.conditions if each.type != "Ready")
    decision = decide(replace(picture, control_plane=replace(picture.control_plane, conditions=unready)))
    assert not decision.status
    assert "rotating encryption keys: waiting until the cluster is ready" in [wait.evidence for wait in decision.waits]


def test_it_waits_until_an_upgrade_has_ended() -> None:
    """Hosts of the old version may not have the new one's command."""
    place = Keys(with_spec(asked(kubernetesVersion=OLD), kubernetesVersion=NEXT))
    decision = place.look()
    assert not decision.status and written(decision)
    assert place.until("Rotate", "Prepare", steps=400) == "Rotate", "in one step, as the new version can"
    assert all(each.kubelet_version == "v1.35.0" for each in place.picture.machines)


def test_a_failed_command_says_what_to_do() -> None:
    place = Keys(asked(), failing={"a": 1})
    assert place.until("Done", "Failed") == "Failed"
    message = verdict(place.picture).message
    assert message.startswith("generation 1: in the phase Rotate: a: (once")
    assert "See `k3s secrets-encrypt status` on a." in message and "restore a snapshot" in message
    place.failing = {}
    for _ in range(40):
        place.picture = heard(place.picture)
        decision = place.look()
        place.act()
    assert decision.applied and place.picture.control_plane.rotate_encryption_keys_phase == "Failed"


def test_a_restart_is_tried_five_times() -> None:
    place = Keys(asked(), failing={"b": 4}, seconds=120.0)
    assert place.until("Done", "Failed") == "Done"
    place = Keys(asked(), failing={"b": 5}, seconds=120.0)
    assert place.until("Done", "Failed") == "Failed"
    assert "in the phase PostRotateRestart: b: (5 times" in verdict(place.picture).message


def test_a_server_at_another_stage_fails_it() -> None:
    place = Keys(asked(), wrong={"b"})
    assert place.until("Done", "Failed") == "Failed"
    assert "a is at the stage reencrypt_finished, and b at start" in verdict(place.picture).message


def test_an_unexpected_stage_after_the_command_fails_it() -> None:
    place = Keys(asked(), wrong={"a"})
    assert place.until("Done", "Failed") == "Failed"
    assert "a reports the stage start after rotate-keys" in verdict(place.picture).message


def test_a_leader_that_is_deleted_fails_it() -> None:
    place = Keys(asked(), slow=50)
    place.until("Rotate")
    place.picture = with_machine(place.picture, "a", lambda each: replace(each, deleted_at=place.picture.now))
    assert place.until("Done", "Failed") == "Failed"
    assert "the machine that led it is gone" in verdict(place.picture).message


def test_no_server_restarts_while_another_member_is_down() -> None:
    place = Keys(asked())
    place.until("PostRotateRestart")
    place.picture = with_machine(place.picture, "c", lambda each: replace(each, failing="gone"))
    for _ in range(20):
        place.picture = heard(place.picture)
        decision = place.look()
        place.act()
    assert decision.waits[0].code is Code.QUORUM and decision.waits[0].actor is Actor.USER


def test_a_request_that_is_taken_back_leaves_no_trace() -> None:
    place = Keys(asked(), slow=50)
    place.until("Rotate")
    place.picture = with_spec(place.picture, rotateEncryptionKeys=None)
    decision = place.look()
    assert decision.status == dict.fromkeys(("rotateEncryptionKeys", "rotateEncryptionKeysPhase", "rotateEncryptionKeysLeader"))
    for _ in range(30):
        place.picture = heard(place.picture)
        decision = place.look()
        place.act()
    assert decision.applied and not any(each.node and task_of(each) for each in place.picture.machines)


def test_a_new_generation_waits_until_the_last_has_ended() -> None:
    place = Keys(asked(), slow=5)
    place.until("PostRotateRestart")
    place.picture = with_spec(place.picture, rotateEncryptionKeys={"generation": 2})
    assert place.until("Done") == "Done" and place.picture.control_plane.rotate_encryption_keys == {"generation": 1}


def test_a_restore_does_not_wait_for_a_leader_that_is_dead() -> None:
    place = Keys(asked())
    while not any(task_of(member) for member in place.picture.machines if member.node):
        place.look()
    place.dead, place.seconds = {"a"}, 100
    asked_for = {"name": "snap", "generation": 1, "restoreRKEConfig": "none"}
    place.picture = with_spec(place.picture, etcdSnapshotRestore=asked_for)
    for _ in range(8):
        place.look()
        place.act()
    assert place.picture.control_plane.rotate_encryption_keys_phase == "Rotate"
    for _ in range(4):
        place.look()
        place.act()
    assert place.picture.control_plane.rotate_encryption_keys_phase == "Failed"
    assert "given up for etcdSnapshotRestore" in verdict(place.picture).message
    assert place.picture.control_plane.etcd_snapshot_restore_phase
