"""Whole operations as the hosts of k3s and RKE2 clusters get them: each plan in its order, with its files, instructions,
variables and probes, compared with what is checked in (`golden/`, one file for a distribution and an operation).

A change of one byte is a diff there. `ACCEPT=1 pytest` of this file writes what is rendered now; docs/reference/operations.md has
the rules that it must follow.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from remuda.kube.objects import Key
from remuda.provisioning import well_known
from remuda.provisioning.etcd.file_requests import DELETE, VERIFY, FileRequest
from remuda.provisioning.etcd.recovery_request import RecoveryRequest
from remuda.provisioning.etcd.snapshot_specs import request_of
from remuda.provisioning.etcd.stored_snapshots import BucketCopy, Look, StoredSnapshot
from remuda.provisioning.planner.decide import plan as decide
from remuda.provisioning.planner.decision import Decision, SecretChange
from remuda.provisioning.planner.render import NamedObject, PlanInputs, renderer
from remuda.provisioning.planner.snapshot import ControlPlane, Machine, Periodic
from remuda.provisioning.plans.plan import (
    INSTALL,
    File,
    Instruction,
    PeriodicInstruction,
    Plan,
    Probe,
    encode,
    instruction,
)
from remuda.provisioning.releases import catalog
from remuda.provisioning.releases.distributions import of_version

from ..world import World, applied, heard, machine, named, snapshot, url, with_node

_GOLDEN = Path(__file__).parent / "golden"
_ACCEPT = os.environ.get("ACCEPT") == "1"

MEMBERS = {"a": "ec", "b": "e", "c": "c", "w": "w"}
ONE = {"a": "ecw"}
THREE = {"a": "ecw", "b": "ecw", "c": "ecw"}
NEW = {"k3s": "v1.34.1+k3s1", "rke2": "v1.34.1+rke2r1"}
OLD = {"k3s": "v1.33.5+k3s1", "rke2": "v1.33.5+rke2r1"}
STAGED = {"k3s": "v1.29.4+k3s1", "rke2": "v1.29.4+rke2r1"}

FILE = "on-demand-b-1700000000"
ON_A = StoredSnapshot(FILE, "demo", machine="a", size=4128, sha256="5" * 64)
ON_B = replace(ON_A, machine="b")
S3 = {"bucket": "backups", "folder": "demo", "endpoint": "s3.example.com", "endpointCA": "-----BEGIN CERTIFICATE-----\nMIIB\n"}
IN_BUCKET = replace(ON_A, machine="", s3=S3, copy=BucketCopy(Look.FOUND))
UPLOADED = replace(ON_A, machine="", location=f"server://{ON_A.sha256}/{FILE}", uploaded=True)
FOR_HOSTS = replace(IN_BUCKET, copy=BucketCopy(Look.HOSTS_ONLY))
SPEC = {"machineGlobalConfig": {"secrets-encryption": True}, "etcd": {"snapshotRetention": 5}}
WITH_S3 = {**SPEC, "etcd": {"snapshotRetention": 5, "s3": {**S3, "cloudCredentialName": "cattle-global-data:cc"}}}
ELSEWHERE = {**SPEC, "dataDirectories": {"systemAgent": "/data/agent", "provisioning": "/data/capr", "k8sDistro": "/data/distro"}}
OWN_CERTIFICATE = ["tls-cert-file=/etc/own.crt", "tls-private-key-file=/etc/own.key"]
WITH_CERTIFICATE = {"machineGlobalConfig": {"kube-controller-manager-arg": OWN_CERTIFICATE}}
CREDENTIAL = NamedObject(data={"s3credentialConfig-accessKey": b"AKIA", "s3credentialConfig-secretKey": b"hidden"})


@dataclass(frozen=True)
class Operation:
    """`spec` requests it; it has ended when `phase` of the control plane is one of the last two."""

    spec: Mapping[str, Any]
    phase: str = ""
    last: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=lambda: NEW)
    stored: StoredSnapshot | None = None
    cluster: Mapping[str, Any] = field(default_factory=lambda: SPEC)
    # The graph asks for a snapshot before an upgrade.
    upgrades: bool = False
    recovery: RecoveryRequest | None = None
    members: Mapping[str, str] = field(default_factory=lambda: MEMBERS)
    # Servers that were registered anew, in the places of all of the cluster's.
    new: Mapping[str, str] = field(default_factory=dict)
    # The fields of the spec of the snapshot's time, which the graph's controller brings back.
    before: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[FileRequest, ...] = ()


def _restore(stored: StoredSnapshot | None, cluster: Mapping[str, Any] = SPEC, mode: str = "none", **more: Any) -> Operation:
    asked = {"name": "snap" if stored else FILE, "generation": 1, "restoreRKEConfig": mode}
    ended = ("etcd_snapshot_restore_phase", ("Finished", "Failed"))
    return Operation({"etcdSnapshotRestore": asked}, *ended, stored=stored, cluster=cluster, **more)


def _recover(
    request: RecoveryRequest, stored: StoredSnapshot | None, cluster: Mapping[str, Any] = SPEC, **more: Any
) -> Operation:
    """From the restore on: before that, no plan is written."""
    spec = {"etcdSnapshotRestore": request.restore(1)}
    ended = ("etcd_snapshot_restore_phase", ("Finished", "Failed"))
    return Operation(spec, *ended, stored=stored, cluster=cluster, recovery=request, **more)


_KEYS = {"rotateEncryptionKeys": {"generation": 1}}
_KEY_PHASE = "rotate_encryption_keys_phase"

OPERATIONS = {
    "create": Operation({"etcdSnapshotCreate": {"generation": 1}}, "etcd_snapshot_create_phase", ("Finished", "Failed")),
    "create in a bucket": Operation(
        {"etcdSnapshotCreate": {"generation": 1}}, "etcd_snapshot_create_phase", ("Finished", "Failed"), cluster=WITH_S3
    ),
    "create before an upgrade": Operation({}, upgrades=True),
    "restore": _restore(ON_A),
    "restore on a member without an API": _restore(ON_B),
    "restore from a bucket": _restore(IN_BUCKET, WITH_S3),
    "restore from a bucket that only hosts can look into": _restore(FOR_HOSTS, WITH_S3),
    "restore of an uploaded file": _restore(UPLOADED),
    "restore with the version": _restore(ON_A, mode="kubernetesVersion", before={"kubernetesVersion": OLD}),
    "restore with all": _restore(
        ON_A,
        mode="all",
        before={"kubernetesVersion": OLD, "machineGlobalConfig": {"secrets-encryption": True, "tls-san": ["then"]}},
    ),
    "restore of one server": _restore(ON_A, members=ONE),
    "restore of three servers": _restore(ON_B, members=THREE),
    "restore in other directories": _restore(ON_A, ELSEWHERE, members=ONE),
    "recover on a host without a plan": _recover(RecoveryRequest(1, snapshot="snap"), IN_BUCKET, WITH_S3, new={"n": "ec"}),
    "recover from a bucket": _recover(RecoveryRequest(1, snapshot="snap"), IN_BUCKET, WITH_S3),
    "recover from an uploaded file": _recover(RecoveryRequest(1, snapshot="snap"), UPLOADED, new={"n": "ec"}),
    "recover from a machine": _recover(RecoveryRequest(1, machine="a"), None),
    "rotate certificates": Operation({"rotateCertificates": {"generation": 1}}),
    "rotate certificates of services": Operation({"rotateCertificates": {"generation": 1, "services": ["etcd", "scheduler"]}}),
    "rotate certificates beside a file of its own": Operation(
        {"rotateCertificates": {"generation": 1}}, cluster=WITH_CERTIFICATE, members=ONE
    ),
    "rotate certificates in other directories": Operation(
        {"rotateCertificates": {"generation": 1}}, cluster=ELSEWHERE, members=ONE
    ),
    "rotate keys in stages in other directories": Operation(
        _KEYS, _KEY_PHASE, ("Done", "Failed"), versions=STAGED, cluster=ELSEWHERE, members=ONE
    ),
    "rotate keys of one server": Operation(_KEYS, _KEY_PHASE, ("Done", "Failed"), members=ONE),
    "rotate keys in one step": Operation(_KEYS, _KEY_PHASE, ("Done", "Failed")),
    "rotate keys in stages": Operation(_KEYS, _KEY_PHASE, ("Done", "Failed"), versions=STAGED),
}
OPERATIONS["check and delete files"] = Operation(
    {},
    members=ONE,
    files=(
        FileRequest("1" * 16, DELETE, "snap-1", "on-demand-a-1600000000", "a"),
        FileRequest("2" * 16, VERIFY, "snap-2", FILE, "a", size=4128, sha256="5" * 64),
    ),
)
CASES = [(runtime, name) for name, operation in OPERATIONS.items() for runtime in operation.versions]


# --- a cluster that gets real plans -------------------------------------------------------------------------------------------


@dataclass
class Hosts(World):
    """Hosts that apply the real renderer's plans, print the stage of a rotation and the address of a member without an API."""

    stage: str = "start"
    written: list[tuple[str, Machine, SecretChange]] = field(default_factory=list)

    def look(self) -> Decision:
        self.picture = heard(self.picture)
        version = self.picture.control_plane.version
        inputs = PlanInputs(
            catalog.built_in().release(version),
            agent_manifest=lambda taints: "# the cluster agent\n",
            secrets={Key("cattle-global-data", "cc"): CREDENTIAL},
        )
        before = self.picture
        decision = decide(before, renderer(inputs))
        self.picture = applied(before, decision)
        phase = _phase(before.control_plane)
        self.written += [(phase, named(before, name), each) for name, each in decision.secrets.items() if each.plan is not None]
        return decision

    def until(self, is_over: Any) -> None:
        for _ in range(300):
            decision = self.look()
            if is_over(decision):
                return
            self.act()
        raise AssertionError([wait.evidence for wait in decision.waits])

    def _version(self, of: Plan) -> str:
        found = instruction(of, INSTALL)
        return found.image.rpartition(":")[2].replace("-", "+") if found is not None and len(of.instructions) == 1 else ""

    def _acted(self, member: Machine) -> Machine:
        before = member.node
        member = super()._acted(member)
        node = member.node
        if node is None or node.state != "succeeded":
            return member
        if before is not None and before.state != "succeeded":
            node = replace(node, output={each.name: self._printed(each) for each in node.plan.instructions})
        periodic = {each.name: Periodic(self._reported(member.name, each)) for each in node.plan.periodicInstructions}
        return with_node(member, replace(node, periodic=periodic))

    def _printed(self, each: Instruction) -> str:
        words = each.args
        step = words[words.index("secrets-encrypt") + 1] if "secrets-encrypt" in words else ""
        if step in ("prepare", "rotate", "reencrypt"):
            self.stage = "reencrypt_finished" if step == "reencrypt" else step
        elif any(word.endswith("/rotate_keys.sh") for word in words):
            self.stage = "reencrypt_finished"
        return self._status() if each.saveOutput else ""

    def _status(self) -> str:
        return f"Encryption Status: Enabled\nCurrent Rotation Stage: {self.stage}\nServer Encryption Hashes: All hashes match\n"

    def _reported(self, name: str, each: PeriodicInstruction) -> str:
        if each.name == "capture-address":
            address = url(name).replace("9345", "2379")
            return json.dumps({"members": [{"name": name, "clientURLs": [address]}]})
        return name if each.name == "etcd-name" else self._status()


def _phase(control_plane: ControlPlane) -> str:
    running = (
        control_plane.etcd_snapshot_create_phase,
        control_plane.etcd_snapshot_restore_phase,
        control_plane.rotate_encryption_keys_phase,
        (control_plane.upgrade_snapshot or {}).get("phase"),
    )
    return next((phase for phase in running if phase), "no phase")


def performed(operation: Operation, version: str) -> Hosts:
    members = _machines(operation.members)
    features = {"encryption-key-rotation": "2.0.0"}
    spec = {"kubernetesVersion": version, "clusterName": "demo", "managementClusterName": "c-m-abcdefgh", **operation.cluster}
    stored = operation.stored
    if stored is not None and operation.before:
        stored = replace(stored, spec=_before(operation, version))
    found = Hosts(snapshot(*members, spec=spec, features=features, stored=stored))
    found.until(lambda decision: bool(decision.applied))
    found.written.clear()
    head = found.picture.control_plane
    head = replace(head, spec={**head.spec, **operation.spec})
    if asked := operation.recovery:
        said = {well_known.RECOVER: asked.text(), well_known.RECOVERED: asked.text()}
        head = replace(head, annotations=said, recover=asked.data(), recover_phase="Restoring")
    if operation.upgrades:
        head = replace(head, annotations={well_known.UPGRADE_SNAPSHOT: f"{version} v1.35.0 7"})
    found.picture = replace(found.picture, control_plane=head)
    if operation.new:
        workers = [each for each in found.picture.machines if each.is_only_worker]
        found.picture = replace(found.picture, machines=(*_machines(operation.new), *workers))
    if operation.files:
        found.picture = replace(found.picture, file_requests={"a": operation.files})

    def is_over(decision: Decision) -> bool:
        own = found.picture.control_plane
        if operation.upgrades:
            return bool(decision.applied) and (own.upgrade_snapshot or {}).get("phase") == "Finished"
        if operation.files:
            return bool(found.written) and all(each.node is not None and each.node.in_sync for each in found.picture.machines)
        _bring_back(found, operation)
        ended = getattr(own, operation.phase) in operation.last if operation.phase else own.certificate_rotation_generation == 1
        return bool(decision.applied) and ended

    found.until(is_over)
    assert not operation.phase or getattr(found.picture.control_plane, operation.phase) == operation.last[0]
    return found


def _machines(roles: Mapping[str, str]) -> list[Machine]:
    return [machine(name, each, infrastructure_kind="CustomMachine") for name, each in roles.items()]


def _before(operation: Operation, version: str) -> Mapping[str, Any]:
    runtime = of_version(version).name
    return {name: value[runtime] if value is OLD else value for name, value in operation.before.items()}


def _bring_back(found: Hosts, operation: Operation) -> None:
    """Once nothing speaks against the snapshot, the spec gets the fields of its time, and the annotation says so."""
    head = found.picture.control_plane
    noted = well_known.RESTORED_SPEC in head.annotations
    if not operation.before or noted or head.etcd_snapshot_restore_phase != "Shutdown":
        return
    before = _before(operation, head.version)
    annotations = {**head.annotations, well_known.RESTORED_SPEC: request_of(head.spec["etcdSnapshotRestore"])}
    found.picture = replace(found.picture, control_plane=replace(head, spec={**head.spec, **before}, annotations=annotations))


# --- in readable words ---------------------------------------------------------------------------------------------------------


def told(found: Hosts) -> str:
    """All plans that were written. A file, a periodic instruction and a probe is shown where it is seen for the first time; later
    its name and the hash of its content are enough."""
    seen: set[str] = set()
    lines: list[str] = []
    for phase, member, change in found.written:
        assert change.plan is not None
        roles = "+".join(_roles(member))
        limits = f"max-failures {change.max_failures}, failure-threshold {change.failure_threshold}"
        joined_to = change.annotations.get(well_known.JOINED_TO) or "none"
        lines += [f"=== {phase}: {member.name} ({roles}), {limits}, joined to {joined_to}"]
        lines += _plan(change.plan, seen)
        lines += [f"plan sha256:{hashlib.sha256(encode(change.plan)).hexdigest()}", ""]
    return "\n".join(lines)


def _roles(member: Machine) -> Iterable[str]:
    of_it = {"etcd": member.is_etcd, "control-plane": member.is_control_plane, "worker": member.is_worker}
    return [role for role, has in of_it.items() if has]


def _plan(of: Plan, seen: set[str]) -> Iterator[str]:
    yield from _shown("files", (_file(file) for file in of.files), seen)
    for each in of.instructions:
        yield f"instruction {each.name}{' [output saved]' if each.saveOutput else ''}"
        yield from _command(each)
    yield from _shown("periodic instructions", (_periodic(each) for each in of.periodicInstructions), seen)
    yield from _shown("probes", (_probe(name, probe) for name, probe in of.probes.items()), seen)
    if of.error:
        yield f"error {of.error}"


def _file(file: File) -> tuple[str, str]:
    marks = [word for word, is_set in (("dynamic", file.dynamic), ("minor", file.minor)) if is_set]
    marks += [f"permissions {file.permissions}"] if file.permissions else []
    # The hash of a program is enough: it is a module of its own.
    text = f"sha256:{hashlib.sha256(file.data).hexdigest()}" if file.path.endswith(".py") else file.data.decode()
    return f"{file.path}{' [' + ', '.join(marks) + ']' if marks else ''}", text


def _periodic(each: PeriodicInstruction) -> tuple[str, str]:
    return f"{each.name} every {each.periodSeconds} s", "\n".join(_command(each))


def _probe(name: str, probe: Probe) -> tuple[str, str]:
    get = probe.httpGet
    counts = (probe.initialDelaySeconds, probe.timeoutSeconds, probe.successThreshold, probe.failureThreshold)
    trust = [word for word in ("insecure" if get.insecure else "", get.clientCert, get.clientKey, get.caCert) if word]
    return name, "\n".join([get.url, "delay, timeout, success, failure: " + ", ".join(map(str, counts)), *trust])


def _command(each: Instruction | PeriodicInstruction) -> Iterator[str]:
    assert not each.script
    if each.image:
        yield f"    image {each.image}"
    yield from (f"    env {variable}" for variable in each.env)
    words = [each.command, *each.args]
    if any("\n" in word for word in words):
        yield from (f"    {line}" for word in words for line in word.splitlines())
    else:
        yield f"    {shlex.join(words)}"


def _shown(kind: str, parts: Iterable[tuple[str, str]], seen: set[str]) -> Iterator[str]:
    yield f"{kind}:"
    known: list[str] = []
    for head, text in parts:
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        if f"{head} {digest}" in seen:
            known.append(f"{head.partition(' ')[0].rpartition('/')[2]} {digest}")
            continue
        yield from _known(known)
        known.clear()
        seen.add(f"{head} {digest}")
        yield f"  {head} {digest}"
        yield from (f"    | {line}" for line in text.splitlines())
    yield from _known(known)


def _known(names: list[str]) -> Iterator[str]:
    if names:
        yield f"  as above: {', '.join(names)}"


# --- the tests -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("runtime", "name"), CASES, ids=lambda word: word.replace(" ", "-"))
def test_an_operation_writes_the_plans_that_are_checked_in(runtime: str, name: str) -> None:
    found = told(performed(OPERATIONS[name], OPERATIONS[name].versions[runtime]))
    path = _GOLDEN / runtime / f"{name.replace(' ', '-')}.txt"
    if _ACCEPT:
        path.parent.mkdir(exist_ok=True)
        path.write_text(found)
    assert found == path.read_text()


def test_nothing_is_checked_in_that_no_operation_writes() -> None:
    written = {f"{runtime}/{name.replace(' ', '-')}.txt" for runtime, name in CASES}
    assert {str(path.relative_to(_GOLDEN)) for path in _GOLDEN.glob("*/*")} == written


def test_versions_are_of_their_distributions() -> None:
    for versions in (NEW, OLD, STAGED):
        assert all(of_version(version).name == name for name, version in versions.items())
