"""`/remuda/rotation`: the endpoint of `remuda rotate`. For administrators, and users with a role for this path.

GET shows the state of rotations; POST to `/remuda/rotation/KIND` begins one, goes on with one that was begun, or, with `finish`,
drops the old key. The answer comes at once, and the work goes on by itself (:mod:`..keys.rotation`). Clients that it
would cut off are found before (:mod:`..keys.ca_followers`): then it needs `force`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from aiohttp import web

from remuda.kube import certificates, errors
from remuda.kube.authorization.users import User
from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock, rfc3339
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig

from ..auth.token_keys import peek
from ..keys import rotation_record
from ..keys.ca_followers import Followers, TrustReport, UnpreparedClient, judged
from ..keys.pki import Pki
from ..keys.rotation import Rotations
from ..keys.rotation_record import KEEPING, Found, Rotation
from ..registry.resources import Registry
from ..storage.store import Store, StoreError
from . import request_bodies, responses
from .paths import Target

if TYPE_CHECKING:
    from .handler import Handler

Obj = dict[str, Any]

PATH: Final = "/remuda/rotation"
SERVING: Final = "serving-certificate"
_TOKEN_TYPE: Final = "kubernetes.io/service-account-token"
_NAMED: Final = 3


class FinishOptions(NamedTuple):
    """The wanted end of the old key. `no_handover` is for a CA whose key is not to be trusted."""

    finish: bool
    force: bool
    no_handover: bool


class _Server(Protocol):
    """The parts of a server whose keys are rotated."""

    store: Store
    registry: Registry
    pki: Pki | None
    rotations: Rotations | None
    followers: list[Followers]
    certificate_is_given: bool

    async def renew(self, *, serving: bool = False) -> None: ...


class RotationPaths:
    def __init__(self, server: _Server, clock: Clock) -> None:
        self._server = server
        self._clock = clock

    def register(self, handler: Handler) -> None:
        handler.paths[PATH] = self._status
        handler.prefixes[f"{PATH}/"] = self._rotate

    @property
    def _rotations(self) -> Rotations:
        if self._server.rotations is None:
            raise ApiError(409, "Conflict", "this server does not keep its keys itself: rotate them where they are kept")
        return self._server.rotations

    async def _status(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        if target.method != "GET":
            raise errors.method_not_allowed()
        return await self._answer(request)

    async def _rotate(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        if target.method != "POST":
            raise errors.method_not_allowed()
        kind = target.path.removeprefix(f"{PATH}/")
        asked = await _body(request)
        wish = FinishOptions(*(asked.get(name) is True for name in ("finish", "force", "noHandover")))
        try:
            left = await self._do(kind, wish)
        except (PkiError, OSError) as error:
            raise ApiError(500, "InternalError", str(error)) from error
        except StoreError as error:
            raise ApiError(503, "ServiceUnavailable", f"{error}; look at remuda rotate status, and try again") from error
        return await self._answer(request, left)

    async def _do(self, kind: str, wish: FinishOptions) -> tuple[UnpreparedClient, ...]:
        """Do what was requested; the clients that it leaves behind."""
        rotations = self._rotations
        if kind == SERVING:
            if self._server.certificate_is_given:
                raise ApiError(
                    409, "Conflict", "the serving certificate is given by --tls-cert-file: replace its files, which is noticed"
                )
            await self._server.renew(serving=True)
            return ()
        if kind not in rotation_record.KINDS:
            raise errors.page_not_found()
        if not wish.finish:
            await rotations.begin(kind)
            return ()
        if kind == rotation_record.CA:
            return await self._finish_ca(wish)
        if kind == rotation_record.SERVICE_ACCOUNTS and not wish.force:
            self._check_tokens((await rotation_record.read(self._server.store)).record.active)
        await rotations.finish(kind)
        return ()

    async def _finish_ca(self, wish: FinishOptions) -> tuple[UnpreparedClient, ...]:
        rotations = self._rotations
        if wish.no_handover and await rotations.end_handovers():
            return ()
        rotation = await rotations.check_finish(rotation_record.CA)
        trust = TrustReport(0, ()) if rotation is None else await self._trust(rotation)
        if trust.behind and not wish.force:
            raise _would_be_cut_off(trust)
        await rotations.finish(rotation_record.CA, no_handover=wish.no_handover)
        return trust.behind

    async def _trust(self, rotation: Rotation) -> TrustReport:
        found = [each for ask in list(self._server.followers) for each in await ask()]
        return judged(found, rotation.new, rotation.old)

    def _check_tokens(self, active: dict[str, rotation_record.Rotation]) -> None:
        """Tokens in Secrets never expire by themselves: they end with the key."""
        rotation = active.get(rotation_record.SERVICE_ACCOUNTS)
        found = [] if rotation is None else self._signed_by(set(rotation.old))
        if found:
            others = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            raise ApiError(
                409,
                "Conflict",
                f"tokens in Secrets were signed with the old key ({', '.join(found[:_NAMED])}{others}): remove data.token of "
                "each, which makes a new one, and hand it to who uses it; or say --force",
            )

    def _signed_by(self, old: set[str]) -> list[str]:
        secrets = self._server.registry.resource("", "secrets")
        assert secrets is not None
        found = []
        for entry in secrets.bucket.entries.values():
            obj = entry.object()
            if obj.get("type") == _TOKEN_TYPE and _signer(dig(obj, "data", "token")) in old:
                found.append(f"{entry.namespace}/{entry.name}")
        return sorted(found)

    # --- responses --------------------------------------------------------------------------------------------------------

    async def _answer(self, request: web.BaseRequest, left: Sequence[UnpreparedClient] = ()) -> web.StreamResponse:
        try:
            told = await self._told()
            if left:
                told["leftBehind"] = [each.told() for each in left]
        except (PkiError, StoreError) as error:
            raise ApiError(503, "ServiceUnavailable", str(error)) from error
        return await responses.body(request, jsonio.dumps(told) + b"\n")

    async def _told(self) -> Obj:
        rotations = self._rotations
        found = await rotation_record.read(self._server.store)
        notes = await rotations.notes()
        told: Obj = {
            "place": rotations.place.where,
            "servers": [note.name for note in notes.values()],
            "keys": [await self._key(kind, found) for kind in rotation_record.KINDS],
            SERVING: await asyncio.to_thread(self._serving),
        }
        for each in told["keys"]:
            rotation = found.record.active.get(each["kind"])
            if rotation is not None:
                each["waitsFor"] = rotations.waits(rotation, each["kind"], notes)
        return told

    async def _key(self, kind: str, found: Found) -> Obj:
        material = rotation_record.arranged(await self._rotations.place.read(), found.record)
        held = rotation_record.held(material, kind)
        told: Obj = {"kind": kind, "used": held[0], "others": held[1:], "stage": ""}
        if kind == rotation_record.CA:
            told["ends"] = rfc3339(certificates.ends(material.authority().certificate))
            handovers = rotation_record.handovers_at(found.record, self._clock.time())
            told["handovers"] = [{"from": list(each.old), "until": rfc3339(each.until)} for each in handovers]
        if kind in found.record.done:
            told["rotated"] = rfc3339(found.record.done[kind])
        rotation = found.record.active.get(kind)
        if rotation is not None:
            told |= {"stage": rotation.stage, "started": rfc3339(rotation.started), "rewritten": rotation.rewritten}
            if rotation.stage == KEEPING and rotation.keep_until:
                told["keptUntil"] = rfc3339(rotation.keep_until)
            if kind == rotation_record.CA and rotation.stage == KEEPING and not rotation.finish:
                trust = await self._trust(rotation)
                told["clients"] = {"total": trust.total, "behind": [each.told() for each in trust.behind]}
        return told

    def _serving(self) -> Obj:
        pki = self._server.pki
        assert pki is not None
        if self._server.certificate_is_given:
            return {"given": True}
        certificate = certificates.parse_certificate(pki.serving_certificate.read_bytes())
        if certificate is None:
            return {}
        return {"used": certificates.fingerprint(certificate), "ends": rfc3339(certificates.ends(certificate))}


def _would_be_cut_off(trust: TrustReport) -> ApiError:
    """The details have all clients; the message names the first."""
    behind = trust.behind
    others = f" and {len(behind) - _NAMED} more" if len(behind) > _NAMED else ""
    causes = [{"reason": "CANotTrusted", "message": each.words} for each in behind]
    return ApiError(
        409,
        "Conflict",
        f"{len(behind)} of {trust.total} hosts and cluster agents don't trust the new CA yet "
        f"({', '.join(each.name for each in behind[:_NAMED])}{others}): wait for them with --until-trusted, or leave them behind "
        "with --force",
        {"causes": causes},
    )


def _signer(token: object) -> str:
    """The key that a token in a Secret claims to be signed with."""
    try:
        unverified = peek(base64.b64decode(str(token or "")).decode())
        return "" if unverified is None else base64.urlsafe_b64decode(str(unverified.header.get("kid") or "") + "==").hex()
    except (binascii.Error, ValueError):
        return ""


async def _body(request: web.BaseRequest) -> Obj:
    data = await request_bodies.read_limited(request) if request_bodies.has_body(request) else b""
    try:
        found = jsonio.loads(data) if data else {}
    except jsonio.JsonError:
        found = None
    if not isinstance(found, dict):
        raise errors.bad_request("the body must be a JSON object")
    return found
