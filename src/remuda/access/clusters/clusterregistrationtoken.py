"""The ClusterRegistrationToken controller: a Secret with a token for each, rotated in time, and the registration commands.

The object itself contains no secret. The code that reveals a token decides what it is good for; :mod:`.token_rotation` decides on
rotation, :mod:`.registration_commands` has the commands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from remuda.api.management_cattle_io import CLUSTER_REGISTRATION_TOKENS, CLUSTERS, GROUP
from remuda.client.idempotent import find, make
from remuda.kube.clock import Entropy
from remuda.kube.encoding.mergepatch import create_merge_patch
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, labels_of, name_of, namespace_of, resource_version_of
from remuda.kube.owners import is_owned_by, reference, with_owner
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, NORMAL, Controller, Manager, Result, Retry, Watch, logger, synced
from remuda.runtime.informer import without_managed_fields

from . import registration_commands
from .server_settings import Server, ServerFacts
from .token_rotation import TOKEN_LENGTH, Issued, aged, look_again, terms_of
from .well_known import NODE_TOKEN, ROTATE, SECRETS, TOKEN_LABEL, token_secret

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "clusterregistrationtoken"
_BY_CLUSTER = "cluster"


class RegistrationTokens:
    controller = Controller(CONTROLLER, CLUSTER_REGISTRATION_TOKENS)

    def __init__(self, manager: Manager, server: Server, entropy: Entropy) -> None:
        self._manager = manager
        self._client = manager.client
        self._clock = manager.clock
        self._server = server
        self._entropy = entropy
        self._events = manager.recorder(CONTROLLER)
        self._tokens = manager.informers.of(CLUSTER_REGISTRATION_TOKENS)
        self._tokens.add_index(_BY_CLUSTER, lambda crt: (namespace_of(crt),))
        self._clusters = manager.informers.of(CLUSTERS)
        self._secrets = manager.informers.of(SECRETS, labels=TOKEN_LABEL, transform=without_managed_fields)
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(SECRETS, _token_of, labels=TOKEN_LABEL, transform=without_managed_fields),
                Watch(CLUSTERS, self._of_cluster, _variables_changed),
                *server.watches(lambda _: list(self._tokens.keys())),
            ),
            concurrency=8,
        )

    def _of_cluster(self, cluster: Obj) -> Iterable[Key]:
        return [Key.of(crt) for crt in self._tokens.indexed(_BY_CLUSTER, name_of(cluster))]

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(self._tokens, self._clusters, self._secrets)
        await self._manager.freshness.caught_up(who)
        crt = self._tokens.get(*key)
        if crt is None:
            self._manager.freshness.forget(who)
            return DONE
        cluster = self._clusters.get("", key.namespace)
        if is_being_deleted(crt):
            return DONE
        if cluster is None or dig(crt, "spec", "clusterName") != key.namespace:
            # A token must be in its cluster's namespace; otherwise a user could make one for any cluster.
            evidence = "it is for no cluster, or not in the namespace of its cluster"
            return Result(waits=(Wait(Code.REFERENCE, Ref(GROUP, "ClusterRegistrationToken", *key), Actor.USER, None, evidence),))
        facts, now = self._server.facts(), self._clock.time()
        issued = await self._issue(crt, facts, now)
        await self._tell(crt, cluster, facts, issued)
        return Result(after=look_again(issued, now))

    # --- the Secret -----------------------------------------------------------------------------------------------------

    async def _issue(self, crt: Obj, facts: ServerFacts, now: float) -> Issued:
        """The token as it is stored now, created or rotated if it was time."""
        key, name = Key.of(crt), token_secret(name_of(crt))
        secret = self._secrets.get(key.namespace, name)
        if secret is None or is_being_deleted(secret):
            # The Secret may exist without the label, and then it is not in the cache.
            secret = await find(self._client, SECRETS, name, key.namespace)
        found = Issued.of((secret or {}).get("data"))
        if not found.token:
            # Older objects have it there.
            found = replace(found, token=dig(crt, "status", "token") or "")
        wish = annotations_of(crt).get(ROTATE, "")
        asked = bool(wish) and secret is not None and annotations_of(secret).get(ROTATE, "") != wish
        issued = aged(
            found,
            terms_of(crt.get("spec") or {}, facts),
            now,
            asked=asked,
            fresh=lambda: self._entropy.token_text(TOKEN_LENGTH),
            spread=lambda most: self._manager.rng.uniform(0, most),
        )
        marks = {ROTATE: wish} if wish else {}
        if secret is None:
            written = await make(self._client, SECRETS, _secret(crt, issued, marks), CONTROLLER)
            if written is None:
                # The write of another replica in this moment counts.
                raise Retry(f"the Secret {name} has just been made")
        else:
            written = await self._rewrite(secret, crt, issued, marks)
        if written is not None:
            self._manager.freshness.wrote((CONTROLLER, key), self._secrets, written)
            if found.token and issued.token != found.token:
                log.info("the token was replaced")
                until = issued.times()["gracePeriodExpiresAt"]
                self._events.event(crt, NORMAL, "Rotated", f"the token was replaced; the one before it is good until {until}")
        return issued

    async def _rewrite(self, secret: Obj, crt: Obj, issued: Issued, marks: dict[str, str]) -> Obj | None:
        patch: Obj = {}
        if (secret.get("data") or {}) != issued.data():
            patch = create_merge_patch({"data": secret.get("data") or {}}, {"data": issued.data()})
        meta: Obj = {}
        if labels_of(secret).get(TOKEN_LABEL) != "true":
            meta["labels"] = {TOKEN_LABEL: "true"}
        if annotations_of(secret).get(ROTATE) != marks.get(ROTATE) and marks:
            meta["annotations"] = marks
        if not is_owned_by(secret, crt):
            meta["ownerReferences"] = with_owner(secret, reference(crt))["metadata"]["ownerReferences"]
        if not patch and not meta:
            return None
        # Of two concurrent rotations one must fail, or it would give out a token that is valid nowhere.
        patch["metadata"] = {**meta, "resourceVersion": resource_version_of(secret)}
        return await self._client.patch(SECRETS, name_of(secret), patch, namespace_of(secret), field_manager=CONTROLLER)

    # --- the object -----------------------------------------------------------------------------------------------------

    async def _tell(self, crt: Obj, cluster: Obj, facts: ServerFacts, issued: Issued) -> None:
        before = crt.get("status") or {}
        wanted = wanted_status(crt, cluster, facts, issued)
        after = {**{name: value for name, value in before.items() if name not in _OURS}, **wanted}
        patch = create_merge_patch({"status": before}, {"status": after})
        if not patch:
            return
        written = await self._client.patch(
            CLUSTER_REGISTRATION_TOKENS, name_of(crt), patch, namespace_of(crt), field_manager=CONTROLLER
        )
        self._manager.freshness.wrote((CONTROLLER, Key.of(crt)), self._tokens, written)


_OURS = frozenset({*registration_commands.FIELDS, "token", "tokenSecretName", "expiresAt", "gracePeriodExpiresAt"})


def wanted_status(crt: Obj, cluster: Obj, facts: ServerFacts, issued: Issued) -> dict[str, str]:
    """The wanted status. A token for nodes can't import a cluster, so its status has no such commands."""
    found = registration_commands.commands(facts.url, facts.ca_checksum, name_of(cluster), dig(cluster, "spec", "agentEnvVars"))
    if name_of(crt) == NODE_TOKEN:
        found = {field: text for field, text in found.items() if field in registration_commands.JOINING}
    said = {**found, "tokenSecretName": token_secret(name_of(crt)), **issued.times()}
    return {field: text for field, text in said.items() if text}


def _secret(crt: Obj, issued: Issued, annotations: dict[str, str]) -> Obj:
    metadata: Obj = {
        "name": token_secret(name_of(crt)),
        "namespace": namespace_of(crt),
        "labels": {TOKEN_LABEL: "true"},
        "ownerReferences": [reference(crt)],
    }
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": issued.data()}


def _token_of(secret: Obj) -> Iterable[Key]:
    return (Key(namespace_of(secret), name_of(secret).removeprefix(token_secret(""))),)


def _variables_changed(new: Obj | None, old: Obj | None) -> bool:
    if new is None or old is None:
        return True
    return bool(dig(new, "spec", "agentEnvVars") != dig(old, "spec", "agentEnvVars"))
