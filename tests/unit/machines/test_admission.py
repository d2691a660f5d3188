"""What is refused and warned of when somebody writes what machines are made from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from remuda.access.roles.holdings import Holdings
from remuda.apiserver.admission.chain import Hooks, install
from remuda.apiserver.crd.conversion import InProcess
from remuda.kube.admission_attributes import CREATE, DELETE, UPDATE, Attributes
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import SYSTEM, User
from remuda.kube.errors import ApiError
from remuda.kube.objects import Listener, name_of, namespace_of
from remuda.machines.admission import MachineRules, admitted
from remuda.runtime.webhook_server import WebhookAddress, path_of, validating_configuration

Obj = dict[str, Any]
FLEET = "fleet-default"
SCHEMA = json.dumps({"resourceFields": {"size": {"type": "string"}, "disk": {"type": "string"}}})


class Stored:
    def __init__(self, **by_resource: list[Obj]) -> None:
        self._objects = by_resource

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        return next((each for each in self.list(group, resource, namespace) if name_of(each) == name), None)

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Obj]:
        return [each for each in self._objects.get(resource, ()) if namespace in ("", namespace_of(each))]

    def subscribe(self, group: str, resource: str, listener: Listener) -> None:
        """Nothing changes here."""


def rules_of(stored: Stored, *readable: str) -> MachineRules:
    """The rules for an administrator, and for other users, who may read the objects of these names and nothing else."""
    rbac = Rbac(stored)
    rbac.besides.append(lambda action: action.verb == "get" and action.name in readable)
    return MachineRules(stored, Holdings(stored, rbac))


def named(name: str, **fields: Any) -> Obj:
    return {"metadata": {"name": name, "namespace": FLEET}, **fields}


def pool(name: str = "cp", config: str = "small", schema: str = SCHEMA, **fields: Any) -> Obj:
    return {
        "name": name,
        "machineConfigRef": {"kind": "LocalConfig", "name": config},
        "dynamicSchemaSpec": schema,
        "workerRole": True,
        **fields,
    }


def cluster(name: str, *pools: Obj, **config: Any) -> Obj:
    return named(name, spec={"rkeConfig": {"machinePools": list(pools), **config}})


def machines(cluster_name: str, pool_name: str, number: int) -> list[Obj]:
    labels = {"cluster.x-k8s.io/deployment-name": f"{cluster_name}-{pool_name}"}
    made = [named(f"{cluster_name}-{pool_name}-{each}", spec={"clusterName": cluster_name}) for each in range(number)]
    return [{**each, "metadata": {**each["metadata"], "labels": labels}} for each in made]


def config(name: str = "small", owner: str = "", **fields: Any) -> Obj:
    made = named(name, apiVersion="rke-machine-config.cattle.io/v1", kind="LocalConfig", **fields)
    if owner:
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "name": owner, "uid": owner, "controller": True}
        ]
    return made


def asked(kind: str, obj: Obj | None, old: Obj | None = None, user: User = SYSTEM) -> Attributes:
    operation = DELETE if obj is None else CREATE if old is None else UPDATE
    about = obj or old or {}
    group = {"Config": "rke-machine-config.cattle.io", "luster": "provisioning.cattle.io"}.get(kind[-6:], "rke-machine.cattle.io")
    return Attributes(operation, group, "v1", f"{kind.lower()}s", kind, FLEET, name_of(about), user, obj=obj, old=old)


def told(rules: MachineRules, attributes: Attributes) -> list[str]:
    judge = {"Config": rules.config_errors, "luster": rules.cluster_errors}.get(attributes.kind[-6:], rules.machine_errors)
    return [f"{each.field}: {each.detail}" for each in judge(attributes)]


# --- what was made ------------------------------------------------------------------------------------------------------------


def machine(**spec: Any) -> Obj:
    made = named("demo-cp-x", spec=spec)
    made["metadata"]["annotations"] = {"cluster.x-k8s.io/cloned-from-name": "demo-cp-12345678"}
    return made


def template(**spec: Any) -> Obj:
    made = named("demo-cp-12345678", spec={"clusterName": "demo", "template": {"spec": spec}})
    made["metadata"]["annotations"] = {"rke.cattle.io/cloned-from-kind": "LocalConfig", "rke.cattle.io/cloned-from-name": "small"}
    return made


def test_a_machine_stays_as_it_was_made_and_the_refusal_names_the_config() -> None:
    rules = rules_of(Stored(localmachinetemplates=[template()]))
    found = told(rules, asked("LocalMachine", machine(size="b", disk="1"), machine(size="a", disk="1")))
    assert found == ["spec.size: what machines were made from stays as it is: change LocalConfig small instead"]


def test_a_machine_whose_template_is_gone_is_refused_all_the_same() -> None:
    found = told(rules_of(Stored()), asked("LocalMachine", machine(size="b"), machine(size="a")))
    assert found == ["spec.size: what machines were made from stays as it is: change the machine config of its pool instead"]


@pytest.mark.parametrize("field", ["common", "providerID"])
def test_what_changes_while_a_machine_is_the_same_may(field: str) -> None:
    rules = rules_of(Stored())
    assert not told(rules, asked("LocalMachine", machine(size="a", **{field: "new"}), machine(size="a")))
    assert not told(rules, asked("LocalMachineTemplate", template(size="a", **{field: "new"}), template(size="a")))


def test_a_template_stays_as_it_is_and_its_clusters() -> None:
    changed = template(size="b")
    changed["spec"]["clusterName"] = "other"
    assert told(rules_of(Stored()), asked("LocalMachineTemplate", changed, template(size="a"))) == [
        "spec.clusterName: it belongs to the cluster demo",
        "spec.template.spec.size: what machines were made from stays as it is: change LocalConfig small instead",
    ]


def test_nothing_is_refused_that_goes_or_is_made_or_says_the_same() -> None:
    rules, going = rules_of(Stored()), machine(size="a")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not told(rules, asked("LocalMachine", machine(size="a")))
    assert not told(rules, asked("LocalMachine", machine(size="b"), going))
    assert not told(rules, asked("LocalMachine", machine(size="a", disk=None), machine(size="a")))


# --- configs ------------------------------------------------------------------------------------------------------------------


def warned(rules: MachineRules, attributes: Attributes) -> list[str]:
    assert told(rules, attributes) == []
    return attributes.warnings


def test_a_change_of_a_config_warns_of_the_machines_it_replaces() -> None:
    first = cluster("demo", pool("cp"), pool("work"), pool("big", "large"))
    stored = Stored(
        clusters=[first, cluster("other", pool("cp", "theirs"))],
        machines=machines("demo", "cp", 3)
        + machines("demo", "work", 2)
        + machines("demo", "big", 9)
        + machines("other", "cp", 5),
    )
    found = warned(rules_of(stored), asked("LocalConfig", config(size="b"), config(size="a")))
    assert found == ["machine pools cp and work of the cluster demo: 5 machines are replaced by new ones"]


def test_one_is_one() -> None:
    stored = Stored(clusters=[cluster("demo", pool())], machines=machines("demo", "cp", 1))
    found = warned(rules_of(stored), asked("LocalConfig", config(size="b"), config(size="a")))
    assert found == ["machine pool cp of the cluster demo: 1 machine is replaced by new ones"]


def test_a_change_that_replaces_no_machine_has_no_warning() -> None:
    stored = Stored(clusters=[cluster("demo", pool())], machines=machines("demo", "cp", 1))
    old, annotated = config(size="a"), config(size="a")
    annotated["metadata"]["annotations"] = {"note": "mine"}
    assert warned(rules_of(stored), asked("LocalConfig", annotated, old)) == []
    assert warned(rules_of(stored), asked("LocalConfig", config(size="a", disk=""), old)) == [], "no text says nothing"
    assert warned(rules_of(stored), asked("LocalConfig", config("unused", size="b"), config("unused", size="a"))) == []


def test_a_field_that_the_pool_is_too_old_for_is_told() -> None:
    stored = Stored(clusters=[cluster("demo", pool())], machines=machines("demo", "cp", 1))
    found = warned(rules_of(stored), asked("LocalConfig", config(size="a", shiny="yes"), config(size="a")))
    assert found == ["machine pool cp of the cluster demo does not use shiny: it was made before its driver knew that"]


def test_a_pool_without_machines_yet_is_no_matter() -> None:
    stored = Stored(clusters=[cluster("demo", pool(schema=""))])
    assert warned(rules_of(stored), asked("LocalConfig", config(size="b"), config(size="a"))) == []


def test_deleting_a_config_that_is_in_use_is_warned_of() -> None:
    stored = Stored(clusters=[cluster("demo", pool())])
    found = warned(rules_of(stored), asked("LocalConfig", None, config()))
    assert found == ["machine pool cp of the cluster demo can't be changed any more without this config"]


def test_a_config_can_not_be_given_away() -> None:
    found = told(rules_of(Stored()), asked("LocalConfig", config(owner="other"), config(owner="demo")))
    assert found == ["metadata.ownerReferences: it belongs to the cluster demo"]


# --- clusters -----------------------------------------------------------------------------------------------------------------

REF = "spec.rkeConfig.machinePools[0].machineConfigRef.name"


def test_a_config_of_another_cluster_is_refused_with_its_owner() -> None:
    stored = Stored(localconfigs=[config(owner="first")])
    found = told(rules_of(stored), asked("Cluster", cluster("demo", pool())))
    assert found == [f"{REF}: this LocalConfig belongs to the cluster first: make one for each cluster"]
    assert not told(rules_of(stored), asked("Cluster", cluster("first", pool())))


def test_so_is_one_that_another_cluster_is_about_to_own() -> None:
    stored = Stored(clusters=[cluster("first", pool())], localconfigs=[config()])
    found = told(rules_of(stored), asked("Cluster", cluster("demo", pool())))
    assert found == [f"{REF}: this LocalConfig belongs to the cluster first: make one for each cluster"]


@pytest.mark.parametrize(
    "stored",
    [
        Stored(localconfigs=[config(owner="first")], clusters=[cluster("first", pool())]),
        Stored(localconfigs=[config()], clusters=[cluster("first", pool())]),
        Stored(clusters=[cluster("first", pool())]),
        Stored(),
    ],
    ids=["owned", "about to be owned", "named only", "absent"],
)
def test_the_owner_of_a_config_is_shown_to_users_who_may_read_it(stored: Stored) -> None:
    stranger = User("u-two")
    assert told(rules_of(stored), asked("Cluster", cluster("demo", pool()), user=stranger)) == [], "as if it was not there"
    friend = told(rules_of(stored, "first"), asked("Cluster", cluster("demo", pool()), user=stranger))
    assert bool(friend) == bool(list(stored.list("", "clusters")))
    assert all("first" in each for each in friend)


def test_clusters_that_name_a_config_are_shown_to_users_who_may_read_them() -> None:
    stored = Stored(clusters=[cluster("theirs", pool())], machines=machines("theirs", "cp", 2))
    for change in (config(size="b"), None):
        about = asked("LocalConfig", change, config(size="a"), user=User("u-two"))
        assert warned(rules_of(stored), about) == []
        assert "theirs" in "".join(warned(rules_of(stored, "theirs"), about))


def test_and_a_template_of_another_provider() -> None:
    theirs = {
        "kind": "SimMachineTemplate",
        "name": "big",
        "apiVersion": "infrastructure.sim.remuda.dev/v1",
    }
    owned = named("big")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "first", "uid": "1"}
    ]
    stored = Stored(simmachinetemplates=[owned])
    found = told(rules_of(stored), asked("Cluster", cluster("demo", pool(machineConfigRef=theirs))))
    assert found == [f"{REF}: this SimMachineTemplate belongs to the cluster first: make one for each cluster"]


def test_a_cluster_that_was_there_can_still_be_changed_elsewhere() -> None:
    stored = Stored(localconfigs=[config(owner="first")])
    new, old = cluster("demo", pool(quantity=2)), cluster("demo", pool(quantity=1))
    assert not told(rules_of(stored), asked("Cluster", new, old))


def test_another_config_warns_when_it_makes_other_machines() -> None:
    stored = Stored(
        machines=machines("demo", "cp", 2),
        localconfigs=[config("small", size="a"), config("same", size="a"), config("big", size="b")],
    )
    old = cluster("demo", pool(config="small"))
    assert warned(rules_of(stored), asked("Cluster", cluster("demo", pool(config="same")), old)) == []
    found = warned(rules_of(stored), asked("Cluster", cluster("demo", pool(config="big")), old))
    assert found == ["machine pool cp: 2 machines are replaced by new ones"]


def test_a_pool_that_is_taken_away_warns_of_its_machines() -> None:
    stored = Stored(machines=machines("demo", "work", 2))
    found = warned(rules_of(stored), asked("Cluster", cluster("demo", pool()), cluster("demo", pool(), pool("work", "other"))))
    assert found == ["without the machine pool work 2 machines are deleted"]


def test_userdata_without_effect_is_reported() -> None:
    wanted = cluster("demo", pool(userdata={"inlineUserdata": "packages: [x]"}))
    (found,) = warned(rules_of(Stored()), asked("Cluster", wanted))
    assert found.startswith("spec.rkeConfig.machinePools[0].userdata: only machines of other infrastructure providers get it")
    foreign = {"apiVersion": "infrastructure.sim.remuda.dev/v1", "kind": "SimCluster", "name": "demo"}
    wanted = cluster("demo", pool(userdata={"inlineUserdata": "packages: [x]"}), infrastructureRef=foreign)
    assert warned(rules_of(Stored()), asked("Cluster", wanted)) == []


# --- for every kind that a driver brings --------------------------------------------------------------------------------------


async def test_the_rules_hold_for_kinds_that_come_later() -> None:
    hooks = Hooks()
    install(admitted(Stored(), Rbac(Stored())), hooks, InProcess())
    with pytest.raises(ApiError, match=r'LocalMachine.rke-machine.cattle.io "demo-cp-x" is invalid: spec.size: Forbidden'):
        await hooks.validate(asked("LocalMachine", machine(size="b"), machine(size="a")))
    status = asked("LocalMachine", machine(size="b"), machine(size="a"))
    status.subresource = "status"
    await hooks.validate(status)


def test_on_another_kubernetes_one_webhook_is_for_all_kinds_of_a_group() -> None:
    types = admitted(Stored(), Rbac(Stored()))[:2]
    made = validating_configuration("remuda", types, WebhookAddress(url="https://h:1"), b"")["webhooks"]
    assert [each["rules"][0]["resources"] for each in made] == [["*"], ["*"]]
    assert [each["name"] for each in made] == [
        "validation.drivermachines.rke-machine.cattle.io",
        "validation.driverconfigs.rke-machine-config.cattle.io",
    ]
    assert path_of("validate", types[0]) == "/validate-rke-machine-cattle-io-v1-drivermachines"
    with pytest.raises(ApiError, match=r'LocalMachine.rke-machine.cattle.io "demo-cp-x" is invalid'):
        types[0].check(asked("LocalMachine", machine(size="b"), machine(size="a")))


# --- credentials and addresses ------------------------------------------------------------------------------------------------

CREDENTIAL = {"cloudCredentialSecretName": "cattle-global-data:cc"}
USER = User("u-one")


@pytest.mark.parametrize(("kind", "made"), [("OpenstackMachine", machine), ("OpenstackMachineTemplate", template)])
def test_what_sends_a_credential_to_an_address_is_made_by_users_who_may_read_it(kind: str, made: Any) -> None:
    path = "spec.template.spec" if kind.endswith("Template") else "spec"
    there = made(authUrl="https://a", common=CREDENTIAL)
    why = "u-one may not read Secret cattle-global-data/cc, which would be sent to this address"
    refused = [f"{path}.authUrl: {why}"]
    other = made(authUrl="https://a", common={"cloudCredentialSecretName": "cattle-global-data:other"})
    marked = made(authUrl="https://a", common=CREDENTIAL)
    marked["metadata"]["annotations"]["remuda.dev/address-authors"] = "{}"
    for old in (None, other, marked):
        assert told(rules_of(Stored()), asked(kind, there, old, USER)) == refused
        assert not told(rules_of(Stored(), "cc"), asked(kind, there, old, USER))
        assert not told(rules_of(Stored()), asked(kind, there, old))
    # An edit elsewhere sends it nowhere else, and without either there is nothing to send.
    assert not told(rules_of(Stored()), asked(kind, there, there, USER))
    for fields in ({"authUrl": "https://a"}, {"flavorName": "m1", "common": CREDENTIAL}):
        assert not told(rules_of(Stored()), asked(kind, made(**fields), None, USER))
