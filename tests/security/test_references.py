"""Every field that names an object, as every kind of user, for objects that are there, absent, replaced and another user's.

The fields come from the types themselves (:func:`remuda.api.schema.naming_fields`): a new one is tried here by itself, and one
that is not marked fails :func:`test_every_field_that_names_a_secret_or_a_config_is_marked`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints, is_typeddict

from remuda import api
from remuda.api import cluster_x_k8s_io, management_cattle_io, plan_cattle_io, provisioning_cattle_io, rke_cattle_io
from remuda.api.provisioning_cattle_io import CLUSTERS
from remuda.api.provisioning_cattle_io.cluster import ClusterSpec
from remuda.api.rke_cattle_io.rkecontrolplane import RKEControlPlaneSpec
from remuda.api.schema import EACH, ENTRY, Form, Names, naming_fields
from remuda.apiserver.admission.chain import install
from remuda.apiserver.inprocess import InProcessClient
from remuda.gateway.auth.access_review import LocalAccess
from remuda.kube.builtin_resources import CRDS
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, annotations_of, dig, uid_of
from remuda.lab.sim import machine_jobs
from remuda.machines import admission as machines
from remuda.provisioning.admission import provider_objects as providers
from remuda.provisioning.admission import references
from remuda.provisioning.planner.render import needs
from remuda.provisioning.references import ACCEPT, AUTHORS, References, SpecReference, references_in
from tests.unit.access.roles.management_house import WORKSPACE, House, house, provisioning_cluster

Obj = dict[str, Any]

GLOBAL = "cattle-global-data"
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles")
ROLE_BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "rolebindings")
RBAC = "rbac.authorization.k8s.io/v1"


@dataclass(frozen=True)
class Field:
    """A marked field of a cluster's spec."""

    path: tuple[str, ...]
    mark: Names

    def __str__(self) -> str:
        return ".".join(self.path)

    def value(self, name: str) -> Any:
        match self.mark.form:
            case Form.NAME:
                return name
            case Form.CREDENTIAL | Form.SCOPED:
                return f"{GLOBAL}:{name}"
            case Form.URL:
                return f"secret://{WORKSPACE}:{name}"
            case Form.OBJECT if self.mark.group:
                return {"kind": "PaperConfig", "name": name}
        return {"apiVersion": "infrastructure.example.com/v1", "kind": "OtherCluster", "name": name}

    def spec(self, name: str) -> Obj:
        """A spec that names an object in this field alone."""
        made: Any = self.value(name)
        for step in reversed(self.path):
            made = [made] if step == EACH else {"registry.example.com" if step == ENTRY else step: made}
        for pool in dig(made, "rkeConfig", "machinePools") or ():
            pool |= {"name": "w", "workerRole": True, "quantity": 0} | (
                {} if "machineConfigRef" in pool else {"machineConfigRef": None}
            )
        assert isinstance(made, dict)
        return {"kubernetesVersion": "v1.34.1+rke2r1", **made, "rkeConfig": made.get("rkeConfig") or {}}

    def reference(self, name: str) -> SpecReference:
        (found,) = references_in(self.spec(name), ClusterSpec, WORKSPACE)
        return found


FIELDS = [Field(*each) for each in naming_fields(ClusterSpec)]
BOUND = [each for each in FIELDS if each.reference("x").is_bound]


# --- the types ----------------------------------------------------------------------------------------------------------------

_LOOKS_NAMING = re.compile(r"(secret|credential)(name)?$|(config|infrastructure)ref$", re.IGNORECASE)
# Kinds whose specs users of a cluster do not write, and fields that the server writes: no way to another user's object.
_SERVERS = {
    "Cluster.v3.spec.clusterSecrets.privateRegistrySecret": "a copy of what the cluster names, which no part of the server reads",
    "Cluster.v3.status.serviceAccountTokenSecret": "where the server has put it",
    "Cluster.v1.status.clientSecretName": "where the server has put it",
    "ClusterRegistrationToken.v3.status.tokenSecretName": "where the server has put it",
    "RKEBootstrap.v1.status.dataSecretName": "where the server has put it",
    "RKEBootstrapTemplate.v1.spec.template.status.dataSecretName": "of no effect",
    "NodeDriver.v3.spec.addCloudCredential": "whether there is a kind of credential at all",
}
_CAPI = re.compile(r"\w+\.v1beta[12]\.")


def _unmarked(hint: Any, at: str) -> Iterator[str]:
    """The fields that look as if they named an object, and are not marked."""
    if not is_typeddict(hint):
        for each in get_args(hint):
            yield from _unmarked(each, at)
        return
    for name, field in get_type_hints(hint, include_extras=True).items():
        here = f"{at}.{name}"
        if _LOOKS_NAMING.search(name) and not any(len(path) <= 1 for path, _ in naming_fields(field)):
            yield here
        yield from _unmarked(field, here)


def test_every_field_that_names_a_secret_or_a_config_is_marked() -> None:
    groups = (cluster_x_k8s_io, management_cattle_io, plan_cattle_io, provisioning_cattle_io, rke_cattle_io)
    kinds = api.kinds([group.GROUP for group in groups])
    found = {
        each for kind in kinds for version in kind.versions for each in _unmarked(version.type, f"{kind.kind}.{version.name}")
    }
    ours = {each for each in found if not _CAPI.match(each)}
    assert ours == set(_SERVERS)


def test_the_fields_that_are_known_today_are_among_them() -> None:
    assert {".".join(path) for path, _ in naming_fields(ClusterSpec)} >= {
        "cloudCredentialSecretName",
        "rkeConfig.etcd.s3.cloudCredentialName",
        "rkeConfig.infrastructureRef",
        "rkeConfig.machineGlobalConfig.cloud-provider-config",
        "rkeConfig.machinePools.[].cloudCredentialSecretName",
        "rkeConfig.machinePools.[].machineConfigRef",
        "rkeConfig.machineSelectorConfig.[].config.cloud-provider-config",
        "rkeConfig.machineSelectorFiles.[].fileSources.[].configMap.name",
        "rkeConfig.machineSelectorFiles.[].fileSources.[].secret.name",
        "rkeConfig.registries.configs.{}.authConfigSecretName",
        "rkeConfig.registries.configs.{}.tlsSecretName",
    }


# --- the stand ----------------------------------------------------------------------------------------------------------------


class Stand:
    """An API with the rules of references and of roles, and the decision that controllers ask for before they use an object.

    Names are those of a test; in the API each field has its own.
    """

    def __init__(self, here: House, number: int, field: Field) -> None:
        self.here = here
        self.number = number
        self.field = field
        self.references = References(here.client, LocalAccess(here.server.rbac))

    def as_(self, user: str) -> InProcessClient:
        return self.here.as_(user)

    def named(self, name: str) -> SpecReference:
        return self.field.reference(f"n{self.number}-{name}")

    def _without_name(self, text: str, name: str) -> str:
        return text.replace(self.named(name).name, "it")

    async def object(self, name: str = "it", *, maker: str = "") -> str:
        """Make what the field names; its uid. Only machine configs are made by users themselves."""
        about = self.named(name)
        made: Obj = {
            "apiVersion": f"{about.group}/{about.version}".lstrip("/"),
            "kind": about.kind,
            "metadata": {"name": about.name, "namespace": about.namespace},
        }
        client = self.as_(maker) if maker and about.group.startswith("rke-machine-config") else self.here.client
        return uid_of(await client.create(about.gvr, made, about.namespace))

    async def remove(self, name: str = "it") -> None:
        about = self.named(name)
        await self.here.client.delete(about.gvr, about.name, about.namespace)

    async def let_read(self, user: str, name: str = "it") -> None:
        about = self.named(name)
        rule = {"apiGroups": [about.group], "resources": [about.resource], "resourceNames": [about.name], "verbs": ["get"]}
        metadata = {"name": f"{user}-{about.name}", "namespace": about.namespace}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": metadata["name"]}
        await self.here.create(ROLES, {"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": [rule]})
        await self.here.create(
            ROLE_BINDINGS,
            {"apiVersion": RBAC, "kind": "RoleBinding", "metadata": metadata, "roleRef": ref, "subjects": [subject]},
        )

    async def take_right(self, user: str, name: str = "it") -> None:
        await self.here.client.delete(ROLE_BINDINGS, f"{user}-{self.named(name).name}", self.named(name).namespace)

    async def cluster(self, author: str, name: str = "it") -> str:
        """Have a user make a cluster that names it; the words of the refusal, empty when it is taken."""
        wanted = {**provisioning_cluster(self.named(name).name), "spec": self.spec(name)}
        try:
            await self.as_(author).create(CLUSTERS, wanted, WORKSPACE)
        except ApiError as error:
            assert error.code in (403, 422)
            return self._without_name(error.message, name)
        return ""

    def spec(self, name: str) -> Obj:
        return self.field.spec(self.named(name).name)

    async def wanted(self, name: str = "it") -> Obj:
        return await self.here.client.get(CLUSTERS, self.named(name).name, WORKSPACE)

    async def use(self, name: str = "it") -> str:
        """What a controller does: bind what there is, and ask. Empty when the cluster may use it, else why not."""
        wanted, about = await self.wanted(name), self.named(name)
        after, _ = await self.references.of(wanted).bound()
        status = {"status": {"references": dig(after, "status", "references")}}
        wanted = await self.here.client.patch(CLUSTERS, about.name, status, WORKSPACE, subresource="status")
        named = self.references.of(wanted)
        if not about.is_bound:
            return self._without_name("".join(why for _, why in await named.unreadable()), name)
        found = await self.here.find(about.gvr, about.name, about.namespace)
        return self._without_name(await named.refusal(about.key, found), name)

    async def accept(self, user: str, name: str = "it") -> None:
        mark = {"metadata": {"annotations": {ACCEPT: "true"}}}
        written = await self.as_(user).patch(CLUSTERS, self.named(name).name, mark, WORKSPACE)
        assert ACCEPT not in annotations_of(written)


def other_definition() -> Obj:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "otherclusters.infrastructure.example.com"},
        "spec": {
            "group": "infrastructure.example.com",
            "scope": "Namespaced",
            "names": {
                "kind": "OtherCluster",
                "plural": "otherclusters",
                "singular": "othercluster",
                "listKind": "OtherClusterList",
            },
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


@contextlib.asynccontextmanager
async def stands(fields: list[Field]) -> AsyncIterator[list[Stand]]:
    """An administrator, two users who make clusters, one who may only log in, and one who sees everything but Secrets."""
    async with house(provisions=True) as here:
        source, rbac = here.server.source, here.server.rbac
        for types in (references.admitted(source, rbac), machines.admitted(source, rbac), providers.admitted(source)):
            install(types, here.server.hooks, here.server.converters)
        for crd in (*machine_jobs.crds(*machine_jobs.FIELDS), other_definition()):
            await here.create(CRDS, crd)
        for role, user in (("admin", "u-admin"), ("user", "u-one"), ("user", "u-two"), ("user-base", "u-base")):
            await here.grant(role, user)
        await here.grant("read-only", "u-reader")
        await here.settle(2.0)
        yield [Stand(here, number, field) for number, field in enumerate(fields)]


# --- the matrix ---------------------------------------------------------------------------------------------------------------


async def test_an_object_of_another_user_is_as_one_that_is_not_there() -> None:
    """Whether it is there before or after the cluster: the same words, and it is not used."""
    async with stands(FIELDS) as every:
        for here in every:
            await here.object("foreign", maker="u-two")
            said = {name: await here.cluster("u-one", name) for name in ("foreign", "absent", "later")}
            assert len(set(said.values())) == 1, (str(here.field), said)
            if said["absent"]:
                continue
            words = {name: await here.use(name) for name in said}
            await here.object("later", maker="u-two")
            words["made by another user"] = await here.use("later")
            assert set(words.values()) == {words["absent"]} != {""}, (str(here.field), words)
            for name in said:
                assert not dig(await here.wanted(name), "status", "references"), str(here.field)


async def test_a_user_s_own_object_is_used_and_an_administrator_uses_all() -> None:
    async with stands(FIELDS) as every:
        for here in every:
            for user in ("u-one", "u-admin"):
                await here.object(user, maker=user)
                if user == "u-one" and here.named(user).group != "rke-machine-config.cattle.io":
                    await here.let_read(user, user)
                assert await here.cluster(user, user) == "", str(here.field)
                assert await here.use(user) == "", str(here.field)


async def test_another_object_under_the_same_name_is_refused_until_it_is_accepted() -> None:
    async with stands(BOUND) as every:
        for here in every:
            for user in ("u-one", "u-admin"):
                first = await here.object(user, maker=user)
                await here.let_read(user, user)
                assert await here.cluster(user, user) == "" and await here.use(user) == "", str(here.field)
                await here.remove(user)
                assert "there is no" in await here.use(user)
                assert await here.object(user, maker="u-two") != first
                assert "is not the object that this cluster was given" in await here.use(user), str(here.field)
                # An edit elsewhere, and what a client sends of the record, accept nothing.
                edited = {"metadata": {"annotations": {AUTHORS: None}}, "spec": {"kubernetesVersion": "v1.34.2+rke2r1"}}
                await here.as_("u-admin").patch(CLUSTERS, here.named(user).name, edited, WORKSPACE)
                assert "is not the object that this cluster was given" in await here.use(user), str(here.field)
                await here.accept("u-admin", user)
                assert await here.use(user) == "", str(here.field)


async def test_a_new_object_of_another_user_under_the_same_name_is_as_one_that_is_not_there() -> None:
    async with stands(BOUND) as every:
        for here in every:
            await here.object(maker="u-one")
            await here.let_read("u-one")
            assert await here.cluster("u-one") == "" and await here.use() == "", str(here.field)
            await here.remove()
            await here.take_right("u-one")
            gone = await here.use()
            await here.object(maker="u-two")
            assert await here.use() == gone != "", str(here.field)


async def test_a_right_that_an_author_loses_is_the_cluster_s_no_more() -> None:
    async with stands(FIELDS) as every:
        for here in every:
            await here.object(maker="u-two")
            await here.let_read("u-one")
            assert await here.cluster("u-one") == "" and await here.use() == "", str(here.field)
            await here.take_right("u-one")
            assert "u-one" in await here.use(), str(here.field)
            await here.accept("u-admin")
            assert await here.use() == "", str(here.field)
            assert "u-one" not in annotations_of(await here.wanted())[AUTHORS]


async def test_roles_in_a_cluster_give_no_right_to_what_it_could_name() -> None:
    async with stands(FIELDS) as every:
        house = every[0].here
        await house.cluster("c-m-aaaaaaaa", creator="u-one")
        for template, user in (("cluster-member", "u-member"), ("cluster-readonly", "u-sees"), ("cluster-owner", "u-owner")):
            await house.member("c-m-aaaaaaaa", template, user)
        await house.settle(2.0)
        for here in every:
            await here.object("foreign", maker="u-two")
            for user in ("u-member", "u-sees", "u-reader", "u-base", "u-two"):
                assert {await _written(here, user, name) for name in ("foreign", "absent")} == {"cannot patch"}, (
                    user,
                    here.field,
                )
            # An owner writes the cluster, and is the author of what they write.
            assert len({await _written(here, "u-owner", name) for name in ("foreign", "absent")}) == 1, str(here.field)


async def _written(here: Stand, user: str, name: str) -> str:
    """What comes of it when a user writes the name of an object into the cluster of u-one."""
    try:
        written = await here.as_(user).patch(CLUSTERS, "c-m-aaaaaaaa-prov", {"spec": here.spec(name)}, WORKSPACE)
    except ApiError as error:
        return "cannot patch" if "cannot patch" in error.message else error.message.replace(here.named(name).name, "it")
    assert user in annotations_of(written)[AUTHORS]
    bound, _ = await here.references.of(written).bound()
    assert here.named(name).key not in (dig(bound, "status", "references") or {})
    return "taken"


# --- where they are used ------------------------------------------------------------------------------------------------------


def test_plans_are_made_of_what_is_marked() -> None:
    """What a control plane's plans need is read from the same marks; the renderer has no other way to an object."""
    for path, mark in naming_fields(RKEControlPlaneSpec):
        field = Field(("rkeConfig", *path), mark)
        spec = field.spec("x")["rkeConfig"]
        found = needs(spec, WORKSPACE)
        assert [*found.secrets, *found.config_maps] == [(field.reference("x").namespace, "x")], path
    told = {path for path, _ in naming_fields(RKEControlPlaneSpec)}
    assert told == {each.path[1:] for each in FIELDS if each.path[0] == "rkeConfig"} - {
        ("infrastructureRef",),
        ("machinePools", EACH, "machineConfigRef"),
        ("machinePools", EACH, "cloudCredentialSecretName"),
    }
