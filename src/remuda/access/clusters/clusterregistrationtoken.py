"""The ClusterRegistrationToken controller: a Secret with a token for each, rotated in time, and the registration commands.

The object itself contains no secret: its commands have `{token}` in place of the token, which :func:`revealed` fills in for users
who may read it. The controller comes first; below it are two pure parts: the commands, and the rotation of tokens.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from remuda.api.management_cattle_io import CLUSTER_REGISTRATION_TOKENS, CLUSTERS, GROUP
from remuda.client.idempotent import find, make
from remuda.kube.clock import Entropy, rfc3339, time_of
from remuda.kube.encoding.mergepatch import create_merge_patch
from remuda.kube.objects import (
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
    with_path,
)
from remuda.kube.owners import is_owned_by, reference, with_owner
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, NORMAL, Controller, Manager, Result, Retry, Watch, changed, logger, synced
from remuda.runtime.informer import without_managed_fields

from .server_settings import ServerFacts, ServerSettings
from .well_known import NODE_TOKEN, ROTATE, SECRETS, TOKEN_LABEL, token_secret

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "clusterregistrationtoken"
_BY_CLUSTER = "cluster"

TOKEN = "{token}"
IMPORTING = ("manifestUrl", "command", "insecureCommand", "pinnedCommand")
JOINING = ("nodeCommand", "insecureNodeCommand", "pinnedNodeCommand", "windowsNodeCommand", "insecureWindowsNodeCommand")
FIELDS = (*IMPORTING, *JOINING)
# Fields of the status that this controller writes.
_OURS = frozenset({*FIELDS, "token", "tokenSecretName", "expiresAt", "gracePeriodExpiresAt"})


class RegistrationTokens:
    controller = Controller(CONTROLLER, CLUSTER_REGISTRATION_TOKENS)

    def __init__(self, manager: Manager, server: ServerSettings, entropy: Entropy) -> None:
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
                Watch(CLUSTERS, self._of_cluster, changed("spec.agentEnvVars")),
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

    async def _issue(self, crt: Obj, facts: ServerFacts, now: float) -> IssuedToken:
        """The token as it is stored now, created or rotated if it was time."""
        key, name = Key.of(crt), token_secret(name_of(crt))
        secret = self._secrets.get(key.namespace, name)
        if secret is None or is_being_deleted(secret):
            # The Secret may exist without the label, and then it is not in the cache.
            secret = await find(self._client, SECRETS, name, key.namespace)
        found = IssuedToken.of((secret or {}).get("data"))
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
                raise Retry(f"the Secret {name} has just been created")
        else:
            written = await self._rewrite(secret, crt, issued, marks)
        if written is not None:
            self._manager.freshness.wrote((CONTROLLER, key), self._secrets, written)
            if found.token and issued.token != found.token:
                log.info("the token was replaced")
                until = issued.times()["gracePeriodExpiresAt"]
                self._events.event(crt, NORMAL, "Rotated", f"the token was replaced; the previous one is valid until {until}")
        return issued

    async def _rewrite(self, secret: Obj, crt: Obj, issued: IssuedToken, marks: dict[str, str]) -> Obj | None:
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

    async def _tell(self, crt: Obj, cluster: Obj, facts: ServerFacts, issued: IssuedToken) -> None:
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


def wanted_status(crt: Obj, cluster: Obj, facts: ServerFacts, issued: IssuedToken) -> dict[str, str]:
    """The wanted status. A token for nodes can't import a cluster, so its status has no such commands."""
    found = commands(facts.url, facts.ca_checksum, name_of(cluster), dig(cluster, "spec", "agentEnvVars"))
    if name_of(crt) == NODE_TOKEN:
        found = {field: text for field, text in found.items() if field in JOINING}
    said = {**found, "tokenSecretName": token_secret(name_of(crt)), **issued.times()}
    return {field: text for field, text in said.items() if text}


def _secret(crt: Obj, issued: IssuedToken, annotations: dict[str, str]) -> Obj:
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


# --- registration commands --------------------------------------------------------------------------------------------------
#
# Byte for byte as in docs/reference/registration.md#tokens-of-a-cluster. A command to import has the cluster's own token, a
# command to register a node that of `node-token`, so that no node learns the token that opens the tunnel.

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Characters that a shell, or PowerShell, interprets between double quotes.
# PowerShell also takes typographic quotation marks for its own.
_SHELL, _POWERSHELL = re.compile(r'(["$`\\])'), re.compile('(["$`\u201c\u201d\u201e])')


def commands(url: str, checksum: str, cluster: str, variables: Iterable[Mapping[str, Any]] | None = None) -> dict[str, str]:
    """All commands; none while this server's address is unknown. `checksum` is empty if a public CA signed its certificate."""
    if not url:
        return {}
    manifest = f"{url}/v3/import/{TOKEN}_{cluster}.yaml"
    return {
        "manifestUrl": manifest,
        "command": f"kubectl apply -f {manifest}",
        "insecureCommand": f"curl --insecure -sfL {manifest} | kubectl apply -f -",
        "pinnedCommand": _pinned_import(url, checksum, manifest),
        "nodeCommand": _linux(url, checksum, variables, "-fL"),
        "insecureNodeCommand": _linux(url, checksum, variables, "--insecure -fL"),
        "pinnedNodeCommand": _pinned_linux(url, checksum, variables),
        "windowsNodeCommand": _windows(url, checksum, variables, "-fL"),
        "insecureWindowsNodeCommand": _windows(url, checksum, variables, "--insecure -fL"),
    }


def _linux(url: str, checksum: str, variables: Iterable[Mapping[str, Any]] | None, how: str) -> str:
    env = _shell_environment(variables)
    return f"{env} curl {how} {url}/system-agent-install.sh | {_run_as_root(url, checksum, env)}"


def _run_as_root(url: str, checksum: str, env: str) -> str:
    ca = f" --ca-checksum {checksum}" if checksum else ""
    return f"sudo {env} sh -s - --server {url} --label 'cattle.io/os=linux' --token {TOKEN}{ca}"


def _pinned_linux(url: str, checksum: str, variables: Iterable[Mapping[str, Any]] | None) -> str:
    if not checksum:
        return _linux(url, checksum, variables, "-fL")
    env = _shell_environment(variables)
    proxies = f"export {env}; " if env else ""
    fetched = _fetch_pinned(f"{url}/cacerts", checksum, f"{url}/system-agent-install.sh", "sha256sum")
    # A shell that gets no script succeeds: it is told to fail.
    return f'({proxies}{fetched} || echo exit 1; rm -f "$ca") | {_run_as_root(url, checksum, env)}'


def _pinned_import(url: str, checksum: str, manifest: str) -> str:
    if not checksum:
        return f"kubectl apply -f {manifest}"
    # This one runs where its user works, which may be macOS: there is no sha256sum.
    fetched = _fetch_pinned(f"{url}/cacerts", checksum, manifest, "$(command -v shasum || command -v sha256sum)")
    return f'({fetched}; rm -f "$ca") | kubectl apply -f -'


def _fetch_pinned(authority: str, checksum: str, wanted: str, sum_program: str) -> str:
    """A shell's words that print `wanted`, if the server's CA has this checksum and the server a certificate of that CA."""
    return (
        f'ca=$(mktemp) && curl -fsSk -o "$ca" {authority} && echo "{checksum}  $ca" | {sum_program} -c - >&2 && '
        f'curl -fsSL --cacert "$ca" {wanted}'
    )


def _shell_environment(variables: Iterable[Mapping[str, Any]] | None) -> str:
    return " ".join(f'{name}="{_in_shell(value)}"' for name, value in _usable(variables))


def _windows(url: str, checksum: str, variables: Iterable[Mapping[str, Any]] | None, how: str) -> str:
    env = " ".join(f'$env:{name}="{_in_powershell(value)}";' for name, value in _usable(variables))
    ca = f" -CaChecksum {checksum}" if checksum else ""
    return (
        f"{env} curl.exe {how} {url}/wins-agent-install.ps1 -o install.ps1; Set-ExecutionPolicy Bypass -Scope Process -Force; "
        f"./install.ps1 -Server {url} -Label 'cattle.io/os=windows' -Token {TOKEN} -Worker{ca}"
    )


def _in_shell(value: str) -> str:
    return _SHELL.sub(r"\\\1", value)


def _in_powershell(value: str) -> str:
    return _POWERSHELL.sub(r"`\1", value)


def _usable(variables: Iterable[Mapping[str, Any]] | None) -> list[tuple[str, str]]:
    """The variables that a command line can set: others would be commands of their own."""
    found = [(each.get("name"), each.get("value") or "") for each in variables or () if not each.get("valueFrom")]
    return [
        (name, value)
        for name, value in found
        if isinstance(name, str) and _VARIABLE.fullmatch(name) and isinstance(value, str) and value.isprintable()
    ]


def revealed(crt: Obj, token: str, node_token: str) -> Obj:
    """A ClusterRegistrationToken for a user who may read its token. Where a token is missing, `{token}` stays."""
    status = dict(dig(crt, "status") or {})
    for fields, secret in ((IMPORTING, token), (JOINING, node_token)):
        for field in fields:
            if isinstance(status.get(field), str) and secret:
                status[field] = status[field].replace(TOKEN, secret)
    status["token"] = token
    return with_path(crt, ("status",), status)


# --- rotation ---------------------------------------------------------------------------------------------------------------
#
# A token is replaced when it expires or on request; the old one stays valid for a grace period, in which agents learn the new one
# (docs/reference/registration.md#tokens-of-a-cluster). To invalidate a token at once, delete its Secret: the new one has no
# predecessor. The stored token and the moment come in, the token to store and the next moment to look go out.

TOKEN_LENGTH = 54
# Minutes.
SHORTEST_TTL, SHORTEST_GRACE = 30, 10
LONGEST_TTL = 10 * 365 * 24 * 60
_LONGEST_SPREAD = 24 * 3600.0
_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class TokenLifetime:
    """Times in seconds. `rotates`: tokens are replaced automatically."""

    ttl: float
    grace: float
    rotates: bool

    @property
    def spread(self) -> float:
        """The longest random extension of a token's life, so that those of many clusters are not all replaced together."""
        return min(self.ttl / 10, _LONGEST_SPREAD)


def terms_of(spec: Mapping[str, Any], facts: ServerFacts) -> TokenLifetime:
    """The terms that a ClusterRegistrationToken asks for, within bounds; 0 means the settings' value."""
    ttl = min(max(_minutes(spec, "ttl") or facts.ttl, SHORTEST_TTL), LONGEST_TTL)
    grace = max(_minutes(spec, "gracePeriod") or facts.grace, SHORTEST_GRACE)
    return TokenLifetime(ttl * _MINUTE, min(grace, ttl - 1) * _MINUTE, facts.rotates)


def _minutes(spec: Mapping[str, Any], field: str) -> int:
    found = spec.get(field)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """The contents of the Secret. Times are seconds since the epoch, or None."""

    token: str = ""
    previous: str = ""
    expires: float | None = None
    grace_ends: float | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any] | None) -> IssuedToken:
        """Read from a Secret's data; an unreadable value counts as missing."""
        return cls(
            _text(data, "token"),
            _text(data, "previousToken"),
            time_of(_text(data, "expiresAt")),
            time_of(_text(data, "gracePeriodExpiresAt")),
        )

    def data(self) -> dict[str, str]:
        said = {
            "token": self.token,
            "previousToken": self.previous,
            "expiresAt": _moment(self.expires),
            "gracePeriodExpiresAt": _moment(self.grace_ends),
        }
        return {name: base64.b64encode(value.encode()).decode() for name, value in said.items() if value}

    def times(self) -> dict[str, str]:
        """The times, which are not secret."""
        return {"expiresAt": _moment(self.expires), "gracePeriodExpiresAt": _moment(self.grace_ends)}


def _moment(seconds: float | None) -> str:
    return "" if seconds is None else rfc3339(seconds)


def _text(data: Mapping[str, Any] | None, name: str) -> str:
    found = (data or {}).get(name)
    try:
        return base64.b64decode(found, validate=True).decode() if isinstance(found, str) else ""
    except (binascii.Error, ValueError):
        return ""


def aged(
    found: IssuedToken,
    terms: TokenLifetime,
    now: float,
    *,
    asked: bool,
    fresh: Callable[[], str],
    spread: Callable[[float], float],
) -> IssuedToken:
    """The token to store now. `asked`: a new token is requested; `fresh` makes one; `spread` picks up to so many seconds."""

    def end() -> float | None:
        return float(int(now + terms.ttl + spread(terms.spread))) if terms.rotates else None

    if not found.token:
        return IssuedToken(fresh(), expires=end())
    if asked or (terms.rotates and found.expires is not None and now >= found.expires):
        return IssuedToken(fresh(), found.token, end(), float(int(now + terms.grace)))
    kept = found
    if found.previous or found.grace_ends is not None:
        # A grace period without an end is over.
        over = not found.previous or found.grace_ends is None or now >= found.grace_ends
        if over:
            kept = replace(kept, previous="", grace_ends=None)
        elif found.grace_ends is not None and found.grace_ends > now + terms.grace:
            kept = replace(kept, grace_ends=float(int(now + terms.grace)))
    if not terms.rotates:
        return replace(kept, expires=None)
    if kept.expires is None or kept.expires > now + terms.ttl + terms.spread:
        # Without an expiry, or the time to live was shortened since.
        return replace(kept, expires=end())
    return kept


def look_again(issued: IssuedToken, now: float) -> float | None:
    """Seconds until the next expiry; None: never."""
    ends = [moment for moment in (issued.expires, issued.grace_ends) if moment is not None]
    return max(0.0, min(ends) - now) if ends else None
