"""The first user: `admin`, with a random password or one from the environment, created once in a store's life.

Several servers may start on one store at the same moment, and any of them may die between any two steps. So every choice (the
user's id, the password) is made by creating one Secret, which only one server can do; all later steps follow that Secret, can be
repeated, and undo no change by a person. The Secret is marked last. A server that starts later finds the mark and does nothing,
even if the user was removed since: an administrator had a reason.

The password itself stays in that Secret until it has been told. With a data directory, the administrator gets it as a file; on an
external Kubernetes, where there is none, it stays in the Secret. Both are emptied after the password was changed
(:meth:`FirstUser.forget`).
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.api.management_cattle_io import API_VERSION, GLOBAL_ROLE_BINDINGS, USERS
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.clock import Clock, Entropy
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig, labels_of
from remuda.kube.private_files import write_private

from .passwords import BOOTSTRAP_VARIABLES, SECRETS, PasswordError, PasswordSecrets, bootstrap_password, ensure_namespace
from .user_objects import ADMIN, BOOTSTRAP_LABEL, BOOTSTRAP_VALUE, FIRST_PREFIX, must_change_password, user_id, user_manifest

log = logging.getLogger(__name__)

Obj = dict[str, Any]

SYSTEM_NAMESPACE = "cattle-system"
SECRET = "bootstrap-secret"
FILE = "bootstrap-password"
DONE_ANNOTATION = "remuda.io/first-user-made"
# A given password does not have to be told.
_GIVEN_ANNOTATION = "remuda.io/password-was-given"
_USER_KEY, _PASSWORD_KEY = "userId", "bootstrapPassword"
_AGAIN = 2.0


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The contents of the Secret."""

    user: str
    password: str = field(repr=False)
    given: bool
    done: bool


class FirstUser:
    """`hashed` hashes a password (:meth:`.passwords.Hashing.hashed`), `say` prints to the server's console.

    `data_dir` None: there is no place for a file, the password stays in the Secret until it is changed.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        environment: Mapping[str, str],
        hashed: Callable[[str], Awaitable[str]],
        say: Callable[[str], None],
        data_dir: Path | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._environment = environment
        self._hashed = hashed
        self._say = say
        self._file = data_dir / FILE if data_dir is not None else None
        self._passwords = PasswordSecrets(client)
        # Set when nothing is left to do, also if that was so from the start.
        self.made = asyncio.Event()

    async def run(self) -> None:
        """Retry until the first user exists; the kinds it needs may not be served yet."""
        told = ""
        while True:
            try:
                await self.ensure()
            except (ApiError, OSError) as error:
                if str(error) != told:
                    log.info("the first user can't be created yet: %s", error)
                    told = str(error)
                await self._clock.sleep(_AGAIN)
            else:
                self.made.set()
                return

    async def ensure(self) -> None:
        chosen = await self._chosen()
        if chosen.done:
            return
        user = await self._ensure_user(chosen)
        if user is None:
            await self._mark(chosen, told=True)
            return
        await self._passwords.add(user, await self._hashed(chosen.password))
        await self._ensure_admin(chosen)
        told = self._tell(chosen) if must_change_password(user) else True
        await self._mark(chosen, told=told)

    # --- choices ------------------------------------------------------------------------------------------------------------

    async def _chosen(self) -> _Chosen:
        secret = await find(self._client, SECRETS, SECRET, SYSTEM_NAMESPACE) or await self._create()
        chosen = _read(secret)
        if chosen.done or (chosen.user and chosen.password):
            return chosen
        # An operator put a password there before the first start, as Rancher's chart does. On a conflict another server was
        # quicker: look again.
        data = {**self._choice(), **(secret.get("data") or {})}
        return _read(await self._client.update(SECRETS, {**secret, "data": data}))

    async def _create(self) -> Obj:
        await ensure_namespace(self._client, SYSTEM_NAMESPACE)
        choice = self._choice()
        given = next((self._environment[name] for name in BOOTSTRAP_VARIABLES if self._environment.get(name)), None)
        was_given = given is not None and choice[_PASSWORD_KEY] == _encoded(given)
        metadata = {
            "name": SECRET,
            "namespace": SYSTEM_NAMESPACE,
            "annotations": {_GIVEN_ANNOTATION: "true" if was_given else "false"},
        }
        try:
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": choice}
            return await self._client.create(SECRETS, secret, SYSTEM_NAMESPACE)
        except ApiError as error:
            if not error.is_already_exists:
                raise
        # Another server was quicker; its choice holds.
        return await self._client.get(SECRETS, SECRET, SYSTEM_NAMESPACE)

    def _choice(self) -> dict[str, str]:
        try:
            made = bootstrap_password(self._entropy, self._environment)
        except PasswordError as error:
            log.error("the bootstrap password of the environment can't be used (%s), so a random one is generated", error)
            made = bootstrap_password(self._entropy, {})
        return {_USER_KEY: _encoded(user_id(self._entropy, FIRST_PREFIX)), _PASSWORD_KEY: _encoded(made.password)}

    async def _mark(self, chosen: _Chosen, *, told: bool) -> None:
        """Mark the Secret as done. A password that was told is no longer kept here."""
        change: Obj = {"metadata": {"annotations": {DONE_ANNOTATION: "true"}}}
        if told:
            change["data"] = {_PASSWORD_KEY: None}
        await self._client.patch(SECRETS, SECRET, change, SYSTEM_NAMESPACE)

    # --- objects that follow ------------------------------------------------------------------------------------------------

    async def _ensure_user(self, chosen: _Chosen) -> Obj | None:
        """The user; None if the store already has administrators of its own."""
        others = (await self._client.list(USERS))["items"]
        mine = next((user for user in others if user["metadata"]["name"] == chosen.user), None)
        if mine is not None:
            return dict(mine)
        if any(user.get("username") == ADMIN or labels_of(user).get(BOOTSTRAP_LABEL) == BOOTSTRAP_VALUE for user in others):
            return None
        manifest = user_manifest(
            chosen.user,
            ADMIN,
            display_name="Default Admin",
            must_change_password=True,
            labels={BOOTSTRAP_LABEL: BOOTSTRAP_VALUE},
        )
        try:
            return await self._client.create(USERS, manifest)
        except ApiError as error:
            if not error.is_already_exists:
                raise
        return await self._client.get(USERS, chosen.user)

    async def _ensure_admin(self, chosen: _Chosen) -> None:
        binding = {
            "apiVersion": API_VERSION,
            "kind": "GlobalRoleBinding",
            # The name follows from the user's name, so that a second try finds the first one's.
            "metadata": {
                "name": f"globalrolebinding-{chosen.user.removeprefix(FIRST_PREFIX)}",
                "labels": {BOOTSTRAP_LABEL: BOOTSTRAP_VALUE},
            },
            "globalRoleName": ADMIN,
            "userName": chosen.user,
        }
        try:
            await self._client.create(GLOBAL_ROLE_BINDINGS, binding)
        except ApiError as error:
            if not error.is_already_exists:
                raise

    def _tell(self, chosen: _Chosen) -> bool:
        """Tell the password; True if it is now kept outside the Secret."""
        if chosen.given:
            return True
        if self._file is None:
            self._say(
                f"The first user is {ADMIN}; its password is in the Secret {SYSTEM_NAMESPACE}/{SECRET} "
                f"(key {_PASSWORD_KEY}), to be changed at the first login"
            )
            return False
        write_private(self._file, f"{chosen.password}\n".encode())
        self._say(
            f"The first user is {ADMIN}, its password {chosen.password} (also in {self._file}), to be changed at the first login"
        )
        return True

    async def forget(self, user: Obj) -> None:
        """A password was changed: if it is the first user's, the first password is invalid and is deleted everywhere."""
        if labels_of(user).get(BOOTSTRAP_LABEL) != BOOTSTRAP_VALUE:
            return
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        try:
            await self._client.patch(SECRETS, SECRET, {"data": {_PASSWORD_KEY: None}}, SYSTEM_NAMESPACE)
        except ApiError as error:
            if not error.is_not_found:
                raise


def _read(secret: Obj) -> _Chosen:
    annotations = dig(secret, "metadata", "annotations") or {}
    return _Chosen(
        user=_decoded(dig(secret, "data", _USER_KEY)),
        password=_decoded(dig(secret, "data", _PASSWORD_KEY)),
        given=annotations.get(_GIVEN_ANNOTATION) == "true",
        done=annotations.get(DONE_ANNOTATION) == "true",
    )


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(value: object) -> str:
    return base64.b64decode(value).decode() if isinstance(value, str) else ""
