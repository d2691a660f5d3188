"""What admission keeps and refuses of references; the matrix of fields and users is in tests/security."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from remuda.access.roles.holdings import Holdings
from remuda.kube.admission_attributes import CREATE, UPDATE, Attributes
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import SYSTEM, User
from remuda.kube.objects import Listener, annotations_of, name_of, with_path
from remuda.provisioning.admission.references import ReferenceRules, admitted
from remuda.provisioning.references import ACCEPT, AUTHORS
from remuda.provisioning.references.authors import read
from remuda.provisioning.well_known import ADDRESS_AUTHORS
from remuda.runtime.webhook_server import WebhookAddress, mutating_configuration

Obj = dict[str, Any]

CREATOR = "field.cattle.io/creatorId"
ONE, TWO = User("u-one"), User("u-two")


class Stored:
    def __init__(self, *configs: Obj) -> None:
        self._configs = configs

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        return next((each for each in self._configs if name_of(each) == name), None)

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Obj]:
        return ()

    def subscribe(self, group: str, resource: str, listener: Listener) -> None:
        """Nothing changes here."""


def rules(*readable: str, stored: Stored | None = None) -> ReferenceRules:
    """Users may read the objects of these names."""
    source = stored or Stored()
    rbac = Rbac(source)
    rbac.besides.append(lambda action: action.verb == "get" and action.name in readable)
    return ReferenceRules(source, Holdings(source, rbac), secrets=False)


def asked(user: User, obj: Obj, old: Obj | None = None, kind: str = "Cluster") -> Attributes:
    operation = CREATE if old is None else UPDATE
    return Attributes(operation, "g", "v1", f"{kind.lower()}s", kind, "fleet", name_of(obj), user, obj=obj, old=old)


def cluster(registry: str = "s", version: str = "1", **annotations: str) -> Obj:
    config = {"registries": {"configs": {"r": {"authConfigSecretName": registry}}}}
    metadata = {"name": "demo", "namespace": "fleet", "resourceVersion": version, "annotations": annotations}
    return {"metadata": metadata, "spec": {"rkeConfig": config}}


def written(user: User, obj: Obj, old: Obj | None = None, *readable: str) -> Obj:
    return rules(*readable).with_authors(asked(user, obj, old)) or obj


def author(obj: Obj) -> str:
    (entry,) = read(obj).entries.values()
    return f"{entry.author.name}@{entry.since}"


def test_what_a_client_says_of_authors_counts_for_nothing() -> None:
    forged = annotations_of(written(TWO, cluster()))[AUTHORS]
    made = written(ONE, cluster(**{AUTHORS: forged}))
    assert author(made) == "u-one@"
    again = written(TWO, cluster(**{AUTHORS: forged}), made)
    assert author(again) == "u-one@"
    assert author(written(TWO, cluster(), made)) == "u-one@", "nor that it says nothing"


def test_who_writes_another_name_is_its_author() -> None:
    made = written(ONE, cluster())
    assert author(written(TWO, cluster("t"), made)) == "u-two@1"


def test_a_user_takes_upon_themselves_what_they_may_read() -> None:
    made = written(ONE, cluster())
    accepting = with_path(made, ("metadata", "annotations", ACCEPT), "true")
    after = written(TWO, accepting, made, "s")
    assert author(after) == "u-two@1" and ACCEPT not in annotations_of(after)


def test_and_nothing_else() -> None:
    made = written(ONE, cluster())
    attributes = asked(TWO, with_path(made, ("metadata", "annotations", ACCEPT), "true"), made)
    after = rules().with_authors(attributes) or {}
    assert author(after) == "u-one@" and ACCEPT not in annotations_of(after)
    (warning,) = attributes.warnings
    assert "u-two may not read the Secret fleet/s" in warning


def test_nothing_changes_where_nothing_is_named() -> None:
    bare: Obj = {"metadata": {"name": "demo", "namespace": "fleet"}, "spec": {}}
    assert rules().with_authors(asked(ONE, bare)) is None


@pytest.mark.parametrize("user", [ONE, SYSTEM], ids=["a user", "the server"])
def test_a_control_plane_names_what_its_writer_may_read(user: User) -> None:
    plane = {"metadata": {"name": "demo", "namespace": "fleet"}, "spec": {"etcd": {"s3": {"cloudCredentialName": "other:s"}}}}
    found = [each.field for each in rules().control_plane_errors(asked(user, plane, kind="RKEControlPlane"))]
    assert found == ([] if user is SYSTEM else ["spec.etcd.s3.cloudCredentialName"])
    changed = {**plane, "spec": {**plane["spec"], "unmanagedConfig": True}}
    assert list(rules().control_plane_errors(asked(user, changed, plane, "RKEControlPlane"))) == []
    assert list(rules("s").control_plane_errors(asked(user, plane, kind="RKEControlPlane"))) == []


def test_a_credential_in_another_field_is_named_anew() -> None:
    """A name that one field has gives no right to use it in another, where it may be sent elsewhere."""
    config = {"machinePools": [{"name": "w", "cloudCredentialSecretName": "cattle-global-data:cc"}]}
    old: Obj = {"metadata": {"name": "demo", "namespace": "fleet"}, "spec": {"rkeConfig": config}}
    new = {**old, "spec": {"rkeConfig": {**config, "etcd": {"s3": {"cloudCredentialName": "cattle-global-data:cc"}}}}}
    (found,) = rules().cluster_errors(asked(TWO, new, old))
    assert found.field == "spec.rkeConfig.etcd.s3.cloudCredentialName"
    assert found.detail == "u-two may not read the Secret cattle-global-data/cc"


# --- machine configs ----------------------------------------------------------------------------------------------------------


def config(creator: str = "") -> Obj:
    return {"metadata": {"name": "c", "namespace": "fleet", "annotations": {CREATOR: creator} if creator else {}}}


def test_a_config_says_who_made_it() -> None:
    made = rules().with_marks(asked(ONE, config(), kind="PodConfig")) or {}
    assert annotations_of(made)[CREATOR] == "u-one"
    kept = rules().with_marks(asked(TWO, config(), made, kind="PodConfig")) or {}
    assert annotations_of(kept)[CREATOR] == "u-one"
    assert rules().with_marks(asked(SYSTEM, config(), kind="PodConfig")) is None


@pytest.mark.parametrize(("said", "before"), [("u-two", None), ("u-two", "u-one"), ("u-two", "")])
def test_and_no_user_says_that_it_was_another(said: str, before: str | None) -> None:
    old = None if before is None else config(before)
    (found,) = rules().config_errors(asked(ONE, config(said), old, kind="PodConfig"))
    assert found.field == f"metadata.annotations[{CREATOR}]"
    assert not list(rules().config_errors(asked(ONE, config("u-one"), kind="PodConfig")))


class Pools(Stored):
    """Two clusters that make a pool from the same config, each with its own credential."""

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Obj]:
        pool = {"name": "w", "machineConfigRef": {"kind": "OpenstackConfig", "name": "c"}}
        for name in ("mine", "theirs"):
            spec = {"cloudCredentialSecretName": f"cc-{name}", "rkeConfig": {"machinePools": [pool]}}
            yield {"metadata": {"name": name, "namespace": "fleet"}, "spec": spec}


def addressed(host: str, **annotations: str) -> Obj:
    return {"metadata": {"name": "c", "namespace": "fleet", "resourceVersion": "1", "annotations": annotations}, "authUrl": host}


def address_author(obj: Obj) -> list[str]:
    return [each.author.name for each in read(obj, ADDRESS_AUTHORS).entries.values()]


@pytest.mark.parametrize(
    ("readable", "said"),
    [
        ((), []),
        (("mine",), ["machine pool w of the cluster mine sends Secret fleet/cc-mine to this address"]),
        (("mine", "cc-mine"), []),
        (("mine", "cc-mine", "theirs"), ["machine pool w of the cluster theirs sends Secret fleet/cc-theirs to this address"]),
        (("mine", "cc-mine", "theirs", "cc-theirs"), []),
    ],
)
def test_an_address_is_refused_for_clusters_that_the_writer_may_read_and_no_others_are_told_of(
    readable: tuple[str, ...], said: list[str]
) -> None:
    """What another user's cluster names says nothing to the writer, and keeps the writer from nothing: its controller refuses."""
    attributes = asked(ONE, addressed("https://b"), addressed("https://a"), kind="OpenstackConfig")
    found = list(rules(*readable, stored=Pools()).config_errors(attributes))
    assert [each.detail.partition(":")[0] for each in found] == said and {each.field for each in found} <= {"authUrl"}


def test_addresses_are_accepted_by_a_user_who_may_read_what_is_sent_there() -> None:
    made = rules().with_marks(asked(ONE, addressed("https://a"), kind="OpenstackConfig")) or {}
    assert address_author(made) == ["u-one"]
    for readable, author, warned in ((("mine",), "u-one", 1), (("mine", "cc-mine"), "u-two", 0)):
        accepting = addressed("https://a", **{**annotations_of(made), ACCEPT: "true"})
        attributes = asked(TWO, accepting, made, kind="OpenstackConfig")
        after = rules(*readable, stored=Pools()).with_marks(attributes) or {}
        assert address_author(after) == [author] and ACCEPT not in annotations_of(after)
        assert len(attributes.warnings) == warned


def test_on_another_kubernetes_both_are_webhooks() -> None:
    types = [each for each in admitted(Stored(), Rbac(Stored())) if each.default is not None]
    made = mutating_configuration("remuda", types, WebhookAddress(url="https://h:1"), b"")["webhooks"]
    assert [(each["rules"][0]["apiGroups"], each["rules"][0]["resources"]) for each in made] == [
        (["provisioning.cattle.io"], ["clusters"]),
        (["rke-machine-config.cattle.io"], ["*"]),
    ]
