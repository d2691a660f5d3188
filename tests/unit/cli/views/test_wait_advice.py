"""What `remuda explain` finds at the end of a chain for waits as controllers tell them: the cause, and what to do about it.

Each row is a stuck state of a cluster; tests/e2e/explaining provokes them on real processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pytest

from remuda.api.rke_cattle_io import AUTHORIZED
from remuda.gateway.explain import wait_advice, wait_chain
from remuda.gateway.explain.states import ClusterView
from remuda.gateway.explain.wait_chain import Link
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.provisioning.planner import waits as texts
from remuda.provisioning.well_known import plan_name

from .shown_clusters import DEMO, FLEET, ID, NOW, PLANE, done, machine_ref, managed, sight, wait, wanted

CAPI, PROVISIONING, MANAGEMENT, RKE_MACHINE = (
    "cluster.x-k8s.io",
    "provisioning.cattle.io",
    "management.cattle.io",
    "rke-machine.cattle.io",
)
WEBHOOKS = "admissionregistration.k8s.io"
CLUSTER, CAPI_CLUSTER = Ref(PROVISIONING, "Cluster", FLEET, DEMO), Ref(CAPI, "Cluster", FLEET, DEMO)
MANAGED = Ref(MANAGEMENT, "Cluster", "", ID)
POOL, SET = Ref(CAPI, "MachineDeployment", FLEET, "demo-pool"), Ref(CAPI, "MachineSet", FLEET, "demo-pool-x")
CHECK = Ref(CAPI, "MachineHealthCheck", FLEET, "demo-pool")
M1, M2 = machine_ref("m1"), machine_ref("m2")
INFRA = Ref("rke-machine.cattle.io", "PodMachine", FLEET, "m1")
JOB = Ref("batch", "Job", FLEET, "m1-machine-provision")
BOOTSTRAP = Ref("rke.cattle.io", "RKEBootstrap", FLEET, "m1")
HOOKED = 'Internal error occurred: failed calling webhook "v.example.com": connection refused'
DENIED = 'admission webhook "v.example.com" denied the request: no label team'
MUTATING = Ref(WEBHOOKS, "MutatingWebhookConfiguration", "", "policies")
DEFINITION = Ref("apiextensions.k8s.io", "CustomResourceDefinition", "", "things.a.b")
ACCEPTED = "accepts it with the annotation remuda.dev/accept-references=true"
ACTIVATE = """kubectl patch nodedriver pod --type merge -p '{"spec":{"active":true}}'"""
AGAIN = "request a restore once more, of this or another snapshot (with a new generation)"
NO_ROLE = f"{texts.ROLES} (missing: etcd, control plane)"


def told(code: Code, subject: Ref, actor: Actor, text: str = "x", on: Ref | None = None) -> Wait:
    return wait(code, subject, actor, text, on)


STATES = {
    "a paused cluster": (
        [
            told(Code.PAUSED, PLANE, Actor.USER, texts.PAUSED, CAPI_CLUSTER),
            told(Code.PAUSED, CAPI_CLUSTER, Actor.USER, "Cluster spec.paused is set to true"),
            told(Code.PAUSED, M1, Actor.USER, "Cluster spec.paused is set to true", CAPI_CLUSTER),
            told(Code.PAUSED, POOL, Actor.USER, "Cluster spec.paused is set to true", CAPI_CLUSTER),
        ],
        (Code.PAUSED, CAPI_CLUSTER),
        ["kubectl -n fleet-default patch cluster.cluster.x-k8s.io demo --type merge -p '{\"spec\":{\"paused\":false}}'"],
    ),
    "a machine paused by an annotation": (
        [told(Code.PAUSED, M1, Actor.USER, "Machine has the cluster.x-k8s.io/paused annotation")],
        (Code.PAUSED, M1),
        ["kubectl -n fleet-default annotate machine.cluster.x-k8s.io m1 cluster.x-k8s.io/paused-"],
    ),
    "pools without an etcd role": (
        [told(Code.ROLES, PLANE, Actor.USER, NO_ROLE)],
        (Code.ROLES, PLANE),
        ["remuda cluster registration-command demo -n fleet-default --etcd --controlplane"],
    ),
    "a missing role while the other machines wait": (
        [
            told(Code.ROLES, PLANE, Actor.USER, f"{texts.ROLES} (missing: etcd)"),
            told(Code.TIER, M1, Actor.REMUDA, texts.CONTROL_PLANE, PLANE),
            told(Code.CONNECTION, M1, Actor.REMUDA, "it can't be reached", CAPI_CLUSTER),
        ],
        (Code.ROLES, PLANE),
        ["remuda cluster registration-command demo -n fleet-default --etcd"],
    ),
    "a driver that is not active": (
        [told(Code.REFERENCE, CLUSTER, Actor.USER, f"machine pool a: activate the node driver pod: {ACTIVATE}")],
        (Code.REFERENCE, CLUSTER),
        [ACTIVATE],
    ),
    "a Secret that was replaced": (
        [told(Code.REFERENCE, CLUSTER, Actor.USER, f"Secret a/cc is a new one: {ACCEPTED} on the cluster, or …")],
        (Code.REFERENCE, CLUSTER),
        ["kubectl -n fleet-default annotate clusters.provisioning.cattle.io demo remuda.dev/accept-references=true"],
    ),
    "an address whose author may not read the credential": (
        [told(Code.REFERENCE, CLUSTER, Actor.USER, f"u-x may not read Secret fleet-default/cc: {ACCEPTED} on the PodConfig a")],
        (Code.REFERENCE, CLUSTER),
        ["kubectl -n fleet-default annotate podconfig.rke-machine-config.cattle.io a remuda.dev/accept-references=true"],
    ),
    "an infrastructure template of a missing kind": (
        [
            told(Code.ROLES, PLANE, Actor.USER, NO_ROLE),
            told(Code.REFERENCE, POOL, Actor.USER, "PodTemplate.example.com: no CustomResourceDefinition defines it"),
        ],
        (Code.REFERENCE, POOL),
        [],
    ),
    "a budget of a health check that is used up": (
        [told(Code.BUDGET, CHECK, Actor.USER, "Remediation is not allowed, … (total: 3, …); unhealthy: m1, m2")],
        (Code.BUDGET, CHECK),
        ["remuda machine delete m1 -n fleet-default", "remuda machine delete m2 -n fleet-default"],
    ),
    "a webhook that is down": (
        [
            told(Code.PAUSED, PLANE, Actor.USER, texts.PAUSED, CAPI_CLUSTER),
            told(Code.FAILED, CAPI_CLUSTER, Actor.USER, HOOKED, Ref(WEBHOOKS, "ValidatingWebhookConfiguration", "", "policies")),
        ],
        (Code.FAILED, CAPI_CLUSTER),
        ["kubectl delete validatingwebhookconfiguration policies"],
    ),
    "a webhook that denies a write": (
        [told(Code.FAILED, CAPI_CLUSTER, Actor.USER, DENIED, Ref(WEBHOOKS, "ValidatingWebhookConfiguration", "", "policies"))],
        (Code.FAILED, CAPI_CLUSTER),
        [],
    ),
    "a webhook that denies a write in the words of one that is down": (
        [told(Code.FAILED, CAPI_CLUSTER, Actor.USER, f"{DENIED}: {HOOKED}", MUTATING)],
        (Code.FAILED, CAPI_CLUSTER),
        [],
    ),
    "a conversion webhook that is down": (
        [told(Code.FAILED, CAPI_CLUSTER, Actor.USER, "conversion webhook for a.b/v1, Kind=C failed: refused", DEFINITION)],
        (Code.FAILED, CAPI_CLUSTER),
        [],
    ),
    "a driver's error while the next Job runs": (
        [
            told(Code.INIT_NODE, PLANE, Actor.USER, f"{texts.INIT_NODE} (m1: has not joined)"),
            told(Code.TIER, M1, Actor.REMUDA, texts.BOOTSTRAP_ETCD, PLANE),
            told(Code.PROVISIONING, M1, Actor.PROVIDER, "not ready", INFRA),
            told(Code.PROVISIONING, INFRA, Actor.USER, "2 tries failed; the last: AuthFailed: no such key"),
            told(Code.PROVISIONING, JOB, Actor.PROVIDER, "its process runs"),
        ],
        (Code.PROVISIONING, INFRA),
        [],
    ),
    "no server-url": (
        [
            told(Code.TIER, M1, Actor.REMUDA, texts.BOOTSTRAP_ETCD, PLANE),
            told(Code.INIT_NODE, PLANE, Actor.USER, texts.INIT_NODE),
            told(Code.PROVISIONING, M1, Actor.PROVIDER, "not ready", BOOTSTRAP),
            told(Code.CONTENT, BOOTSTRAP, Actor.USER, "the setting is empty", Ref(MANAGEMENT, "Setting", "", "server-url")),
        ],
        (Code.CONTENT, BOOTSTRAP),
        [],
    ),
    "a pool that waits for its machine": (
        [
            told(Code.MACHINES, POOL, Actor.REMUDA, "0 of 1 machines are available", SET),
            told(Code.PLAN_FAILED, M1, Actor.USER, texts.PLAN_FAILED),
        ],
        (Code.PLAN_FAILED, M1),
        [],
    ),
    "a hook that delays a deletion": (
        [told(Code.HOOK, M1, Actor.OTHER_CONTROLLER, "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup")],
        (Code.HOOK, M1),
        [
            "kubectl -n fleet-default annotate machine.cluster.x-k8s.io m1 "
            "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup-"
        ],
    ),
    "a drain hook that is not answered": (
        [
            told(Code.HOOK, M1, Actor.OTHER_CONTROLLER, "draining node: waiting for pre-drain hook example.com/ready"),
            told(Code.HOOK, M1, Actor.OTHER_CONTROLLER, "these hooks have not answered: example.com/ready"),
        ],
        (Code.HOOK, M1),
        [
            f'kubectl -n fleet-default annotate secret {plan_name("m1-boot")} example.com/ready="$(kubectl -n fleet-default get '
            f"secret {plan_name('m1-boot')} -o jsonpath='{{.metadata.annotations.rke\\.cattle\\.io/pre-drain}}')\""
        ],
    ),
    "a version that does not exist": (
        [told(Code.RELEASE, PLANE, Actor.USER, "there is no release v1.99.0+remuda1 (known: v1.33.5+remuda1, v1.34.1+remuda1)")],
        (Code.RELEASE, PLANE),
        [
            "kubectl -n fleet-default patch clusters.provisioning.cattle.io demo --type merge "
            """-p '{"spec":{"kubernetesVersion":"v1.34.1+remuda1"}}'"""
        ],
    ),
    "a silent agent of a pool's worker": (
        [told(Code.SILENT, M2, Actor.USER, "its agent has not answered since 2026-01-01T00:00:00Z")],
        (Code.SILENT, M2),
        ["remuda machine delete m2 -n fleet-default"],
    ),
    "a Secret that the cluster may not have": (
        [
            told(
                Code.RENDER,
                M1,
                Actor.USER,
                f"Secret fleet-default/motd is not authorized for the cluster demo: its annotation {AUTHORIZED} does not name it",
                Ref("", "Secret", FLEET, "motd"),
            )
        ],
        (Code.RENDER, M1),
        [
            f'kubectl -n fleet-default annotate --overwrite secret motd {AUTHORIZED}="$(kubectl -n fleet-default get secret motd '
            """-o jsonpath='{.metadata.annotations.rke\\.cattle\\.io/object-authorized-for-clusters}'),demo\""""
        ],
    ),
    "a finalizer of another program": (
        [told(Code.FINALIZERS, M1, Actor.OTHER_CONTROLLER, "finalizers of other programs hold it: example.com/a, b")],
        (Code.FINALIZERS, M1),
        [
            "kubectl -n fleet-default patch machine.cluster.x-k8s.io m1 --type json -p '"
            """[{"op": "test", "path": "/metadata/finalizers", "value": ["example.com/a", "b"]}, """
            """{"op": "remove", "path": "/metadata/finalizers"}]'"""
        ],
    ),
    "a cluster whose etcd machines are all gone": (
        [told(Code.RESTORE, PLANE, Actor.USER, texts.ETCD_REPLACED)],
        (Code.RESTORE, PLANE),
        ["remuda snapshot ls demo -n fleet-default", "remuda cluster recover demo -n fleet-default"],
    ),
    "a restore that failed after the stop": (
        [told(Code.RESTORE, PLANE, Actor.USER, f"Restore on m1: no space left; the cluster is stopped: {AGAIN}")],
        (Code.RESTORE, PLANE),
        ["remuda snapshot ls demo -n fleet-default"],
    ),
    "an operation that waits for another one": (
        [told(Code.TURN, PLANE, Actor.REMUDA, "etcdSnapshotRestore: waiting for rotateCertificates to end")],
        (Code.TURN, PLANE),
        [],
    ),
    "an argument without effect beside a cause": (
        [
            told(Code.WITHOUT_EFFECT, PLANE, Actor.USER, texts.WITHOUT_EFFECT),
            told(Code.PROBES, M1, Actor.MACHINE, "waiting for probes: etcd"),
        ],
        (Code.PROBES, M1),
        [],
    ),
}  # fmt: skip


def _machines() -> tuple[dict[str, object], ...]:
    first, second = done("m1", roles="etcd,control-plane"), done("m2")
    for each in (first, second):
        each["metadata"]["labels"]["cluster.x-k8s.io/deployment-name"] = "demo-pool"
        each["spec"]["bootstrap"] = {"configRef": {"name": f"{each['metadata']['name']}-boot"}}
    return first, second


def _ends(links: Iterable[Link]) -> Iterator[Link]:
    """The links with nothing below them, whose waits end the chain."""
    for link in links:
        yield from _ends(link.below)
        if not link.below:
            yield link


@pytest.mark.parametrize("state", STATES)
def test_the_cause_of_a_stuck_state_and_what_to_do(state: str) -> None:
    waits, (code, subject), commands = STATES[state]
    found = sight(wanted(), *_machines(), waits=tuple(waits))
    links = wait_chain.chain(found, NOW)
    cause = wait_chain.causes(links)[0]
    assert (cause.code, cause.subject) == (code, subject)
    assert cause in [each.wait for each in _ends(links)]
    assert wait_chain.to_do(links, found)[0].commands == tuple(commands)


@pytest.mark.parametrize("state", STATES)
def test_commands_can_be_run_as_they_are(state: str) -> None:
    waits, _, _ = STATES[state]
    found = sight(wanted(), *_machines(), waits=tuple(waits))
    for each in waits:
        for command in wait_advice.about(each, found).commands:
            assert not re.search(r"\b[A-Z]{4,}\b|…|<", command), command


def test_no_advice_is_to_delete_a_cluster_that_a_snapshot_can_bring_back() -> None:
    for text in (texts.ETCD_REPLACED, texts.RESTORED_GONE, f"Shutdown on m1: exit code 1; the cluster is stopped: {AGAIN}"):
        found = wait_advice.about(told(Code.RESTORE, PLANE, Actor.USER, text), sight(wanted()))
        assert "delete the cluster" not in found.text and "restore" in found.text
        recovers = ("remuda cluster recover demo -n fleet-default",) if text == texts.ETCD_REPLACED else ()
        assert found.commands == ("remuda snapshot ls demo -n fleet-default", *recovers)


@pytest.mark.parametrize(("name", "again"), [("snap-1", True), ("$(reboot)", False), ("", False)])
def test_a_failed_restore_can_be_requested_again_by_a_command(name: str, again: bool) -> None:
    found = ClusterView(wanted(), plane={"status": {"etcdSnapshotRestore": {"name": name}}})
    advice = wait_advice.about(told(Code.RESTORE, PLANE, Actor.USER, AGAIN), found)
    listing = "remuda snapshot ls demo -n fleet-default"
    assert advice.commands == ((listing, f"remuda snapshot restore demo {name} -n fleet-default") if again else (listing,))


@pytest.mark.parametrize(
    ("roles", "pool", "node_ready", "begins"),
    [
        ("worker", True, False, ["remuda machine delete m1"]),
        ("worker", True, True, ["remuda ssh m1"]),
        ("etcd,control-plane", True, False, ["remuda ssh m1"]),
        ("worker", False, True, []),
    ],
)
def test_a_silent_agent_is_restarted_or_its_host_given_up(roles: str, pool: bool, node_ready: bool, begins: list[str]) -> None:
    host = done("m1", roles=roles)
    host["status"]["conditions"].append({"type": "NodeReady", "status": "True" if node_ready else "Unknown"})
    if pool:
        host["metadata"]["labels"]["cluster.x-k8s.io/deployment-name"] = "demo-pool"
    found = wait_advice.about(told(Code.SILENT, M1, Actor.USER, "its agent does not answer"), sight(wanted(), host))
    assert found.text.startswith("Start the host if it is off. Else, on it: journalctl")
    assert [command.partition(" -n fleet-default")[0] for command in found.commands] == begins


@pytest.mark.parametrize(
    ("pool", "commands"),
    [(False, ("remuda cluster registration-command demo -n fleet-default --etcd --controlplane",)), (True, ())],
)
def test_the_last_etcd_machine_is_followed_by_one_of_its_roles(pool: bool, commands: tuple[str, ...]) -> None:
    host = done("m1", roles="etcd,control-plane")
    if pool:
        host["metadata"]["labels"]["cluster.x-k8s.io/deployment-name"] = "demo-pool"
    for each in (told(Code.LAST_ETCD, M1, Actor.USER), told(Code.LAST_ETCD, PLANE, Actor.USER, "x", M1)):
        found = wait_advice.about(each, sight(wanted(), host))
        assert found.text.startswith("Add another etcd machine") and found.commands == commands


def test_objects_that_are_paused_with_their_cluster_are_counted() -> None:
    found = sight(wanted(), *_machines(), waits=tuple(STATES["a paused cluster"][0]))
    (root,) = wait_chain.chain(found, NOW)
    assert [each.wait.evidence for each in root.below] == ["Cluster spec.paused is set to true; 2 objects are paused with it"]


@pytest.mark.parametrize(
    ("field", "pointer"),
    [
        ("machineGlobalConfig.write-kubeconfig-mode", "/spec/rkeConfig/machineGlobalConfig/write-kubeconfig-mode"),
        ("machineGlobalConfig.kubelet-arg[1]", "/spec/rkeConfig/machineGlobalConfig/kubelet-arg/1"),
        ("machineSelectorConfig[0].config.debug", "/spec/rkeConfig/machineSelectorConfig/0/config/debug"),
        # These have gone meanwhile.
        ("machineGlobalConfig.kubelet-arg[7]", ""),
        ("machineGlobalConfig.debug", ""),
    ],
)
def test_a_value_that_a_host_refuses_is_removed_by_the_command(field: str, pointer: str) -> None:
    config = {"write-kubeconfig-mode": "rw", "kubelet-arg": ["v=2", "no-such-flag"]}
    rke = {"machineGlobalConfig": config, "machineSelectorConfig": [{"config": {"debug": "loud"}}]}
    text = f"{texts.PLAN_FAILED} (once): {texts.VALUE_REFUSED} spec.rkeConfig.{field}: $(reboot)"
    found = wait_advice.about(told(Code.PLAN_FAILED, M1, Actor.USER, text), sight(wanted(rkeConfig=rke)))
    assert found.text.startswith(f"Correct spec.rkeConfig.{field} of the cluster")
    patch = f'[{{"op":"remove","path":"{pointer}"}}]'
    command = f"kubectl -n fleet-default patch clusters.provisioning.cattle.io demo --type json -p '{patch}'"
    assert found.commands == ((command,) if pointer else ())


def test_a_webhook_that_denies_is_not_to_be_deleted() -> None:
    found = wait_advice.about(told(Code.FAILED, CAPI_CLUSTER, Actor.USER, DENIED, MUTATING), sight(wanted()))
    assert found.text.startswith("Change what the webhook denies")
    assert "kubectl get mutatingwebhookconfiguration policies" in found.text
    assert not found.commands


@pytest.mark.parametrize(
    ("runs", "applied", "chosen"),
    [
        ("", "", "v1.36.0+remuda1"),
        ("v1.34.1+remuda1", "", "v1.34.10+remuda1"),
        ("", "v1.35.2+remuda1", "v1.35.2+remuda1"),
        ("v1.34.1+remuda1", "v1.33.5+remuda1", "v1.34.10+remuda1"),
        ("v1.34.1'; reboot", "", "v1.36.0+remuda1"),
    ],
)
def test_the_version_that_is_advised_is_one_that_the_servers_may_get(runs: str, applied: str, chosen: str) -> None:
    server = done("m1", roles="etcd,control-plane")
    server["status"]["nodeInfo"] = {"kubeletVersion": runs}
    plane = {"status": {"appliedSpec": {"kubernetesVersion": applied}}}
    text = "no such (known: v1.33.5+remuda1, v1.34.2+remuda1, v1.34.10+remuda1, v1.36.0+remuda1)"
    found = wait_advice.about(told(Code.RELEASE, PLANE, Actor.USER, text), ClusterView(wanted(), plane=plane, machines=(server,)))
    assert [f'"{chosen}"' in command for command in found.commands] == [True]


def test_an_agent_that_never_connected_is_started_by_the_user() -> None:
    never = told(Code.CLUSTER_AGENT, MANAGED, Actor.USER, "its agent has never connected")
    found = ClusterView(wanted(rkeConfig=None), managed=managed(), waits=(never, never))
    (do,) = wait_chain.to_do(wait_chain.chain(found, NOW), found)
    assert do.commands == ("remuda cluster registration-command demo -n fleet-default",)
    assert do.text == f"{ID}: Run the output of the command where kubectl reaches the cluster."


def test_machines_that_can_not_be_reached_are_no_cause_where_there_is_another() -> None:
    unreached = told(Code.CONNECTION, M2, Actor.USER, "it can't be reached", CAPI_CLUSTER)
    plan = told(Code.PLAN, PLANE, Actor.MACHINE, "configuring bootstrap node(s) m1", M1)
    note = told(Code.WITHOUT_EFFECT, PLANE, Actor.USER)

    def causes(*waits: Wait) -> list[Code]:
        return [each.code for each in wait_chain.causes(wait_chain.chain(sight(wanted(), *_machines(), waits=waits), NOW))]

    assert causes(plan, unreached) == [Code.PLAN]
    assert causes(unreached) == [Code.CONNECTION]
    assert causes(note, unreached) == [Code.CONNECTION, Code.WITHOUT_EFFECT]


def test_what_would_make_a_cluster_ready_is_no_cause_while_it_is_deleted() -> None:
    goes = told(Code.DELETION, M1, Actor.PROVIDER, "waits", INFRA)
    fails = told(Code.DELETION, INFRA, Actor.USER, "its removal failed (PermissionDenied: no)")
    joins = told(Code.CHECK_IN, PLANE, Actor.USER, texts.CHECK_IN)

    def causes(*waits: Wait, deleting: bool = True) -> list[Wait]:
        found = sight(wanted(deleting=deleting), *_machines(), waits=waits)
        return wait_chain.causes(wait_chain.chain(found, NOW))

    assert causes(joins, goes, fails) == [fails]
    assert causes(joins, goes, fails, deleting=False) == [joins, fails]
    assert causes(joins) == [joins]


def test_a_missing_object_is_told_once_by_the_cluster_that_names_it() -> None:
    secret = Ref("", "Secret", FLEET, "motd")
    renders = [told(Code.RENDER, each, Actor.USER, "there is no Secret", secret) for each in (M1, M2)]
    other = told(Code.RENDER, M2, Actor.USER, "there is no Secret", Ref("", "Secret", FLEET, "other"))
    names = told(Code.REFERENCE, CLUSTER, Actor.USER, "there is no Secret", secret)
    waits = (names, told(Code.MALFORMED, PLANE, Actor.USER, "there is no Secret", M1), *renders, other)
    found = sight(wanted(), *_machines(), waits=waits)
    assert wait_chain.causes(wait_chain.chain(found, NOW)) == [names, other]


def test_a_disconnected_agent_is_no_consequence_of_a_note() -> None:
    gone = told(Code.CONNECTION, MANAGED, Actor.USER, "its agent is not connected")
    found = sight(wanted(), waits=(told(Code.WITHOUT_EFFECT, PLANE, Actor.USER), gone))
    causes = wait_chain.causes(wait_chain.chain(found, NOW))
    assert [each.code for each in causes] == [Code.CONNECTION, Code.WITHOUT_EFFECT]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("it could not be made (QuotaExceeded: 10 droplets)", "Request a higher quota"),
        ("it could not be made (AuthFailed: no such key)", "Correct the cloud credential"),
        ("it could not be made (Invalid: region: nowhere)", "Correct the field"),
        ("it could not be made (Unavailable: 503)", "Nothing: it is tried again"),
    ],
)
def test_an_error_of_a_driver_says_what_to_do_by_its_reason(text: str, advice: str) -> None:
    found = wait_advice.about(told(Code.PROVISIONING, INFRA, Actor.USER, text), sight(wanted()))
    assert found.text.startswith(advice) and "remuda machine attempts demo" in found.text


@pytest.mark.parametrize(
    ("code", "subject", "text"),
    [
        (Code.RELEASE, PLANE, "no such version (known: v1.33.5+remuda1'; reboot; ')"),
        (Code.BUDGET, CHECK, "not allowed; unhealthy: $(reboot)"),
        (Code.HOOK, M1, "draining node: waiting for pre-drain hook x;reboot"),
        (Code.FINALIZERS, M1, "finalizers of other programs hold it: $(reboot)"),
        (Code.PLAN_FAILED, M1, f"{texts.VALUE_REFUSED} spec.$(reboot)"),
        (Code.REFERENCE, CLUSTER, "kubectl patch nodedriver pod --type merge -p '$(reboot)'"),
        (Code.REFERENCE, CLUSTER, f"{ACCEPTED} on the PodConfig $(reboot)"),
        (Code.REFERENCE, CLUSTER, "kubectl patch nodedriver $(reboot) --type merge -p '{}'"),
    ],
)
def test_texts_of_others_put_nothing_into_commands(code: Code, subject: Ref, text: str) -> None:
    found = wait_advice.about(told(code, subject, Actor.USER, text), sight(wanted(), *_machines()))
    assert not any("reboot" in command for command in found.commands)
