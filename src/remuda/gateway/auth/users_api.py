"""`/v3/users`: the caller's own user and password, and other users for callers who may manage them.

Permissions are those of the management API on `users`. One rule is added: a caller may set the password of, disable or remove
only users who have no permission that the caller lacks (:meth:`~remuda.access.roles.holdings.Holdings.may_stand_for`).
Otherwise every user manager would be an administrator.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from remuda.access.users.first_user import FirstUser
from remuda.access.users.passwords import Busy, Hashing, PasswordError, PasswordSecrets, check_new
from remuda.access.users.user_objects import is_enabled, meant_by, name_problem, text_problem, user_id, user_manifest
from remuda.api.management_cattle_io import GROUP, USERS, VERSION
from remuda.kube.authorization.actions import Action
from remuda.kube.errors import ApiError, bad_request, not_found, unavailable
from remuda.kube.objects import labels_of, metadata, name_of, resource_version_of

from ..server import norman
from ..server.dependencies import Services
from ..server.norman import Refused, told
from ..server.routing import Access, RequestContext
from .login_providers import LocalProvider
from .tokens import Sessions

Obj = dict[str, Any]

MIN_LENGTH = "password-min-length"
_TRIES = 5


class UserApi:
    def __init__(self, services: Services, sessions: Sessions, local: LocalProvider, hashing: Hashing, first: FirstUser) -> None:
        self._services = services
        self._sessions = sessions
        self._local = local
        self._hashing = hashing
        self._first = first
        self._passwords = PasswordSecrets(services.client)
        self._users = services.informers.of(USERS)
        add, body = services.routes.add, norman.LARGEST_BODY
        # Newcomers may only read their own user and change their password.
        add("GET", "/v3/users", told(self.listed), Access.PASSWORD_CHANGE, largest=0)
        add("POST", "/v3/users", told(self.act), Access.PASSWORD_CHANGE, largest=body)
        add("GET", "/v3/users/{name}", told(self.get), Access.USER, largest=0)
        add("PUT", "/v3/users/{name}", told(self.update), Access.USER, largest=body)
        add("POST", "/v3/users/{name}", told(self.act_on), Access.USER, largest=body)
        add("DELETE", "/v3/users/{name}", told(self.remove), Access.USER, largest=body)

    # --- reading --------------------------------------------------------------------------------------------------------

    async def listed(self, asked: RequestContext) -> web.StreamResponse:
        parameters = norman.parameters_of(asked)
        itself = f"{norman.base_url(asked, self._services)}/v3/users"
        if parameters.get("me") == "true":
            own = self._users.get("", asked.user.name)
            found = [] if own is None else [own]
        else:
            self._check_settled(asked)
            await self._check(asked, "list")
            found = sorted(self._users.objects(), key=name_of)
            if "username" in parameters:
                found = [user for user in found if user.get("username") == parameters["username"]]
        return norman.shown(norman.collection("user", [self._resource(asked, user) for user in found], itself))

    async def get(self, asked: RequestContext) -> web.StreamResponse:
        return norman.shown(self._resource(asked, await self._reached(asked, "get")))

    async def _reached(self, asked: RequestContext, verb: str) -> Obj:
        """The user of the path. Callers who may not read other users get the same answer for missing ones."""
        name = asked.parameters["name"]
        if verb != "get" or name != asked.user.name:
            await self._check(asked, verb, name)
        try:
            # Read from the API: the user may have just been made.
            return await self._services.client.get(USERS, name)
        except ApiError as error:
            if error.is_not_found:
                raise not_found(GROUP, USERS.resource, name) from None
            raise

    async def _check(self, asked: RequestContext, verb: str, name: str = "") -> None:
        await norman.check(self._services, Action(asked.user, verb, GROUP, VERSION, USERS.resource, name=name))

    @staticmethod
    def _check_settled(asked: RequestContext) -> None:
        assert asked.caller is not None
        if asked.caller.must_change_password:
            raise Refused(403, "Forbidden", "the password must be changed first")

    def _resource(self, asked: RequestContext, user: Obj) -> Obj:
        itself = f"{norman.base_url(asked, self._services)}/v3/users/{name_of(user)}"
        return {
            "id": name_of(user),
            "type": "user",
            "baseType": "user",
            **norman.created_fields(metadata(user)),
            "username": str(user.get("username") or ""),
            "name": str(user.get("displayName") or ""),
            "description": str(user.get("description") or ""),
            "enabled": user.get("enabled") is not False,
            "state": "active" if is_enabled(user) else "inactive",
            "mustChangePassword": user.get("mustChangePassword") is True,
            "principalIds": list(user.get("principalIds") or ()),
            "labels": labels_of(user),
            "me": name_of(user) == asked.user.name,
            "links": {"self": itself, "remove": itself, "update": itself},
            "actions": {"setpassword": f"{itself}?action=setpassword"},
        }

    # --- one's own password ---------------------------------------------------------------------------------------------

    async def act(self, asked: RequestContext) -> web.StreamResponse:
        match norman.action_of(asked):
            case "changepassword":
                return await self._change(asked)
            case "":
                self._check_settled(asked)
                return await self._create(asked)
        raise bad_request("there is no such action")

    async def _change(self, asked: RequestContext) -> web.StreamResponse:
        assert asked.caller is not None
        body = await norman.body_of(asked)
        current, new = norman.text_of(body, "currentPassword"), norman.text_of(body, "newPassword")
        user = self._users.get("", asked.user.name)
        if user is None or asked.caller.presented is None:
            raise Refused(403, "Forbidden", "only users of this server have a password to change")
        # A stolen session must not allow guessing the password: this is throttled as logins are.
        try:
            await self._local.prove(user, current, str(user.get("username") or name_of(user)), asked.address)
        except Refused as error:
            if error.code == 401:
                raise Refused(422, "InvalidBodyContent", "the current password is wrong", error.why) from None
            raise
        self._check_new(new, user)
        if new == current:
            raise norman.invalid("the new password must differ from the current one")
        await self._set(user, new, asked.caller.presented.name, must_change=False)
        return web.Response(status=200)

    def _check_new(self, password: str, user: Obj) -> None:
        try:
            check_new(password, str(user.get("username") or ""), self._services.settings().number(MIN_LENGTH))
        except PasswordError as error:
            raise norman.invalid(str(error)) from None

    async def _set(self, user: Obj, password: str, current: str, *, must_change: bool) -> None:
        """Set a new password, end every other session, and then the newcomer state: in this order, so that the user can do it
        again after an interruption."""
        await self._passwords.put(user, await self._hashed(password))
        await self._sessions.end_others(name_of(user), current)
        await self._first.forget(user)
        changed = await self._services.client.patch(USERS, name_of(user), {"mustChangePassword": must_change})
        await self._sessions.seen(self._users.reach(resource_version_of(changed)))

    async def _hashed(self, password: str) -> str:
        try:
            return await self._hashing.hashed(password)
        except Busy as error:
            raise unavailable(str(error), retry_after=3) from None

    # --- other users -----------------------------------------------------------------------------------------------------

    async def _create(self, asked: RequestContext) -> web.StreamResponse:
        await self._check(asked, "create")
        body = await norman.body_of(asked)
        username, password = norman.text_of(body, "username"), norman.text_of(body, "password")
        name, description = norman.text_of(body, "name"), norman.text_of(body, "description")
        problem = name_problem(username) or text_problem("the name", name) or text_problem("the description", description)
        if problem:
            raise norman.invalid(problem)
        self._check_new(password, {"username": username})
        await self._check_free(username)
        hashed = await self._hashed(password)
        enabled, must_change = norman.flag_of(body, "enabled"), norman.flag_of(body, "mustChangePassword")
        user = await self._created(username, name, description, must_change=bool(must_change), enabled=enabled is not False)
        try:
            await self._passwords.put(user, hashed)
        except BaseException:
            # The user could not log in, and the name would be taken.
            await self._services.client.delete(USERS, name_of(user))
            raise
        await self._sessions.seen(self._users.reach(resource_version_of(user)))
        return norman.shown(self._resource(asked, user), 201)

    async def _check_free(self, username: str) -> None:
        """Two concurrent requests both find the name free; then it means the first of them (:func:`meant_by`)."""
        users = (await self._services.client.list(USERS))["items"]
        if meant_by(user for user in users if user.get("username") == username) is not None:
            raise Refused(422, "NotUnique", "a user of that name exists already")

    async def _created(self, username: str, name: str, description: str, *, must_change: bool, enabled: bool) -> Obj:
        for _ in range(_TRIES):
            manifest = user_manifest(
                user_id(self._services.entropy),
                username,
                display_name=name,
                description=description,
                must_change_password=must_change,
                enabled=enabled,
            )
            try:
                return await self._services.client.create(USERS, manifest)
            except ApiError as error:
                if not error.is_already_exists:
                    raise
        raise unavailable("no free id was found for the user: try again", retry_after=1)

    async def update(self, asked: RequestContext) -> web.StreamResponse:
        user = await self._reached(asked, "update")
        body = await norman.body_of(asked)
        change: Obj = {}
        for field, kept in (("name", "displayName"), ("description", "description")):
            if body.get(field) is not None:
                change[kept] = norman.text_of(body, field)
                if problem := text_problem(f"the {field}", change[kept]):
                    raise norman.invalid(problem)
        for field in ("enabled", "mustChangePassword"):
            if (flag := norman.flag_of(body, field)) is not None:
                change[field] = flag
        if change.get("enabled") is False:
            self._check_other(asked, "disable")
        if "enabled" in change or "mustChangePassword" in change:
            await self._check_not_above(asked, user)
        if body.get("password") is not None or norman.text_of(body, "username", user.get("username") or "") != user.get(
            "username"
        ):
            raise norman.invalid("the user name stays as it is, and a password is set by the action setpassword")
        changed = await self._services.client.patch(USERS, name_of(user), change) if change else user
        # A disabled user has lost access once this is answered.
        await self._sessions.seen(self._users.reach(resource_version_of(changed)))
        return norman.shown(self._resource(asked, changed))

    async def act_on(self, asked: RequestContext) -> web.StreamResponse:
        if norman.action_of(asked) != "setpassword":
            raise bad_request("there is no such action")
        assert asked.caller is not None
        user = await self._reached(asked, "update")
        await self._check_not_above(asked, user)
        body = await norman.body_of(asked)
        password = norman.text_of(body, "newPassword")
        self._check_new(password, user)
        current = asked.caller.presented.name if asked.caller.presented is not None else ""
        await self._set(user, password, current, must_change=norman.flag_of(body, "mustChangePassword") is True)
        return norman.shown(self._resource(asked, await self._services.client.get(USERS, name_of(user))))

    async def remove(self, asked: RequestContext) -> web.StreamResponse:
        user = await self._reached(asked, "delete")
        self._check_other(asked, "remove")
        await self._check_not_above(asked, user)
        shown = self._resource(asked, user)
        await self._services.client.delete(USERS, name_of(user))
        return norman.shown(shown)

    @staticmethod
    def _check_other(asked: RequestContext, what: str) -> None:
        if asked.parameters["name"] == asked.user.name:
            raise norman.invalid(f"you can't {what} yourself")

    async def _check_not_above(self, asked: RequestContext, user: Obj) -> None:
        name, held = name_of(user), self._services.holdings
        may = name == asked.user.name if held is None else held.may_stand_for(asked.user, name)
        if not may:
            raise Refused(
                403, "Forbidden", "the user has permissions that you lack", f"{name} has permissions that {asked.user.name} lacks"
            )
