"""Signs and verifies JSON web tokens with the service-account key, and makes the documents that publish its public key.

JWT itself is joserfc's: of the 90 µs that a check takes, 65 are the elliptic-curve arithmetic that any implementation
needs, and :mod:`.service_accounts` caches the results. Only ES256 is accepted: a token with another algorithm (or
"none") fails like one with a wrong signature. The library is imported at first use.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from remuda.kube.certificates import blocks
from remuda.kube.encoding import jsonio

if TYPE_CHECKING:
    from joserfc.jwk import ECKey

Obj = dict[str, Any]

ALGORITHM = "ES256"
ISSUER = "https://kubernetes.default.svc.cluster.local"
KEYS_PATH = "/openid/v1/jwks"
_LONGEST = 65_536


class BadSignature(Exception):
    """A token that names our issuer, but was not signed with one of our keys."""


class Unverified(NamedTuple):
    """A token's parts before its signature is verified: only for choosing the verifier."""

    header: Obj
    payload: Obj


class _Loaded(NamedTuple):
    signing: ECKey
    signing_id: str
    by_id: dict[str, ECKey]


class TokenKeys:
    """The signing key, and all keys whose tokens are accepted (the first `pem` signs; the others are retired)."""

    def __init__(self, *pems: bytes | Callable[[], bytes]) -> None:
        self._pems = pems
        self._loaded: _Loaded | None = None
        # Incremented whenever the keys are replaced: cached verifications are then dropped.
        self.generation = 0

    def use(self, pems: Sequence[bytes]) -> None:
        """Replace the keys."""
        self._pems = tuple(pems)
        self._loaded = None
        self.generation += 1

    def _keys(self) -> _Loaded:
        if self._loaded is None:
            from joserfc.jwk import ECKey

            found = [pem() if callable(pem) else pem for pem in self._pems]
            keys = [ECKey.import_key(each) for pem in found for each in blocks(pem)]
            identified = {_key_id(key): key for key in keys}
            self._loaded = _Loaded(keys[0], _key_id(keys[0]), identified)
        return self._loaded

    def sign(self, claims: Obj) -> str:
        from joserfc import jws

        loaded = self._keys()
        header = {"alg": ALGORITHM, "kid": loaded.signing_id}
        return jws.serialize_compact(header, jsonio.dumps_sorted(claims), loaded.signing, [ALGORITHM])

    def verify(self, token: str, header: Obj) -> Obj:
        """The claims of a token; raises BadSignature. `header` is the token's own, from :func:`peek`."""
        from joserfc import jws
        from joserfc.errors import JoseError

        loaded = self._keys()
        key_id = header.get("kid") or ""
        candidates = [loaded.by_id.get(key_id)] if key_id else list(loaded.by_id.values())
        if candidates == [None]:
            raise BadSignature("invalid signature, no keys found")
        for key in candidates:
            assert key is not None
            try:
                content = jws.deserialize_compact(token, key, [ALGORITHM]).payload
                claims = jsonio.loads(content)
            except (JoseError, ValueError, TypeError):
                continue
            if isinstance(claims, dict):
                return claims
        raise BadSignature("go-jose/go-jose: error in cryptographic primitive")

    def key_set(self) -> Obj:
        """The public keys (JWKS), for relying parties."""
        keys = []
        for key_id, key in self._keys().by_id.items():
            public: Obj = dict(key.as_dict(private=False))
            keys.append(
                {"use": "sig", "kty": "EC", "kid": key_id, "crv": public["crv"], "alg": ALGORITHM}
                | {"x": public["x"], "y": public["y"]}
            )
        return {"keys": keys}


def openid_configuration(issuer: str, server_url: str) -> Obj:
    """The discovery document of the issuer; its key set is on this server."""
    return {
        "issuer": issuer,
        "jwks_uri": server_url.rstrip("/") + KEYS_PATH,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM],
    }


def peek(token: str) -> Unverified | None:
    """A token's header and payload, unverified; None when it is not a compact JWT."""
    if len(token) > _LONGEST or token.count(".") != 2 or not token.isascii():
        return None
    header, payload, _ = token.split(".")
    try:
        parts = [jsonio.loads(base64.b64decode(_padded(part), altchars=b"-_", validate=True)) for part in (header, payload)]
    except ValueError:
        return None
    return Unverified(*parts) if all(isinstance(part, dict) for part in parts) else None


def audiences_of(claims: Obj) -> tuple[str, ...]:
    found = claims.get("aud")
    if isinstance(found, str):
        return (found,) if found else ()
    return tuple(each for each in found if isinstance(each, str)) if isinstance(found, Iterable) else ()


def _padded(part: str) -> str:
    return part + "=" * (-len(part) % 4)


def _key_id(key: ECKey) -> str:
    """The hash of the public key, as Kubernetes names keys."""
    der = key.as_der(private=False)
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).decode().rstrip("=")
