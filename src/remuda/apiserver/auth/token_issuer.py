"""Issues ServiceAccount tokens: the `token` subresource (TokenRequest), and legacy tokens for Secrets that request one.

:mod:`.service_accounts` verifies them. The token controller calls the legacy part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from remuda.kube.authorization.users import service_account_name
from remuda.kube.clock import Clock, Entropy, rfc3339
from remuda.kube.errors import FieldError, bad_request, conflict, go_quote, invalid, invalid_value, not_found
from remuda.kube.objects import GroupVersion, ObjectSource, metadata, name_of, namespace_of, uid_of

from .service_accounts import LEGACY_CLAIM, LEGACY_ISSUER
from .token_keys import TokenKeys

Obj = dict[str, Any]

GROUP = "authentication.k8s.io"
MIN_SECONDS = 600
MAX_SECONDS = 1 << 32
DEFAULT_SECONDS = 3600
# Pods' projected tokens request exactly this; they get a year, and a claim with the time to renew them by.
PROJECTED_SECONDS = 3607
EXTENDED_SECONDS = 365 * 86_400
_TOKEN_REQUEST = "TokenRequest"


@dataclass(frozen=True, slots=True)
class _Binding:
    """The object that a token is bound to, as claims; `pod` is true for a Pod."""

    claims: Obj
    pod: bool = False


class TokenIssuer:
    def __init__(
        self,
        keys: TokenKeys,
        source: ObjectSource,
        clock: Clock,
        entropy: Entropy,
        issuer: str,
        audiences: Iterable[str],
        extend_projected: bool = True,
    ) -> None:
        self._keys = keys
        self._source = source
        self._clock = clock
        self._entropy = entropy
        self._issuer = issuer
        self._audiences = list(audiences)
        self._extend_projected = extend_projected

    def prepare(self, namespace: str, name: str, body: Obj) -> Obj:
        """The complete TokenRequest without its status, for validating admission. Raises ApiError."""
        meta = metadata(body)
        if (asked := meta.get("name") or "") not in ("", name):
            problem = invalid_value("metadata.name", asked, "must match the service account name if specified")
            raise invalid(GROUP, _TOKEN_REQUEST, name, [problem])
        if (asked := meta.get("namespace") or "") not in ("", namespace):
            problem = invalid_value("metadata.namespace", asked, "must match the service account namespace if specified")
            raise invalid(GROUP, _TOKEN_REQUEST, name, [problem])
        account = self._account(namespace, name)
        if (asked := meta.get("uid") or "") not in ("", uid_of(account)):
            why = f"the UID in the token request ({asked}) does not match the UID of the service account ({uid_of(account)})"
            raise conflict(GROUP, _TOKEN_REQUEST, name, why)
        spec = body.get("spec") or {}
        seconds = spec.get("expirationSeconds")
        seconds = DEFAULT_SECONDS if seconds is None else seconds
        problems = _expiration_problems(seconds)
        if problems:
            raise invalid(GROUP, _TOKEN_REQUEST, "", problems)
        filled: Obj = {"name": name, "namespace": namespace, "uid": uid_of(account)}
        filled["creationTimestamp"] = rfc3339(self._clock.time())
        kept = {key: value for key, value in meta.items() if key not in filled}
        return {
            "kind": _TOKEN_REQUEST,
            "apiVersion": f"{GROUP}/v1",
            "metadata": {**filled, **kept},
            "spec": {
                "audiences": list(spec.get("audiences") or self._audiences),
                "expirationSeconds": seconds,
                "boundObjectRef": spec.get("boundObjectRef"),
            },
            "status": {"token": "", "expirationTimestamp": None},
        }

    def issue(self, namespace: str, name: str, body: Obj) -> Obj:
        """The answer to a TokenRequest for the ServiceAccount. Raises ApiError."""
        return self.sign(self.prepare(namespace, name, body))

    def sign(self, request: Obj) -> Obj:
        """A prepared TokenRequest with its token."""
        meta, spec = request["metadata"], request["spec"]
        account = self._account(meta["namespace"], meta["name"])
        binding = self._binding(meta["namespace"], meta["name"], spec["boundObjectRef"])
        now = int(self._clock.time())
        seconds, private = spec["expirationSeconds"], {"namespace": meta["namespace"], **binding.claims}
        private["serviceaccount"] = {"name": meta["name"], "uid": uid_of(account)}
        lifetime = seconds
        projected = binding.pod and seconds == PROJECTED_SECONDS and set(spec["audiences"]) <= set(self._audiences)
        if self._extend_projected and projected:
            private["warnafter"] = now + seconds
            lifetime = EXTENDED_SECONDS
        claims = {
            "aud": spec["audiences"],
            "exp": now + lifetime,
            "iat": now,
            "iss": self._issuer,
            "jti": self._entropy.uuid(),
            "kubernetes.io": private,
            "nbf": now,
            "sub": service_account_name(meta["namespace"], meta["name"]),
        }
        status = {"token": self._keys.sign(claims), "expirationTimestamp": rfc3339(now + seconds)}
        return {**request, "status": status}

    def legacy_token(self, account: Obj, secret: Obj) -> str:
        """The token for a Secret of type kubernetes.io/service-account-token; valid while the Secret holds it."""
        namespace, name = namespace_of(account), name_of(account)
        return self._keys.sign(
            {
                "iss": LEGACY_ISSUER,
                "sub": service_account_name(namespace, name),
                f"{LEGACY_CLAIM}namespace": namespace,
                f"{LEGACY_CLAIM}service-account.name": name,
                f"{LEGACY_CLAIM}service-account.uid": uid_of(account),
                f"{LEGACY_CLAIM}secret.name": name_of(secret),
            }
        )

    def _account(self, namespace: str, name: str) -> Obj:
        return self._object("serviceaccounts", namespace, name)

    def _object(self, resource: str, namespace: str, name: str) -> Obj:
        if not name:
            raise bad_request("Name parameter required.")
        found = self._source.get("", resource, namespace, name)
        if found is None:
            raise not_found("", resource, name)
        return found

    def _binding(self, namespace: str, account: str, ref: Obj | None) -> _Binding:
        if ref is None:
            return _Binding({})
        group, version = GroupVersion.parse(ref.get("apiVersion") or "")
        kind, name = ref.get("kind") or "", ref.get("name") or ""
        claims: Obj = {}
        if group == "" and kind == "Pod":
            bound = self._object("pods", namespace, name)
            spec = bound.get("spec") or {}
            if (spec.get("serviceAccountName") or "") != account:
                quoted = go_quote(account)
                raise bad_request(
                    f"cannot bind token for serviceaccount {quoted} to pod running with different serviceaccount name."
                )
            claims["pod"] = _claim(bound)
            if node := spec.get("nodeName"):
                # A deleted node is still named, so that the token shows where the pod was meant to run.
                found = self._source.get("", "nodes", "", node)
                claims["node"] = {"name": node} if found is None else _claim(found)
        elif group == "" and kind == "Node":
            bound = self._object("nodes", "", name)
            claims["node"] = _claim(bound)
        elif group == "" and kind == "Secret":
            bound = self._object("secrets", namespace, name)
            claims["secret"] = _claim(bound)
        else:
            raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
        uid = ref.get("uid") or ""
        if uid and uid != uid_of(bound):
            why = (
                f"the UID in the bound object reference ({uid}) does not match the UID in record. The object might have "
                "been deleted and then recreated"
            )
            raise conflict(group, kind, name, why)
        return _Binding(claims, pod=kind == "Pod")


def _claim(obj: Obj) -> Obj:
    return {"name": name_of(obj), "uid": uid_of(obj)}


def _expiration_problems(seconds: int) -> list[FieldError]:
    path = "spec.expirationSeconds"
    if seconds < MIN_SECONDS:
        return [invalid_value(path, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > MAX_SECONDS:
        return [invalid_value(path, seconds, "may not specify a duration larger than 2^32 seconds")]
    return []
