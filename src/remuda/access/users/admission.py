"""Admission rules for users and tokens written through the Kubernetes API, after RBAC has allowed the write.

Both kinds say who a person is, so writing one means acting as that person. If a user holds what the writer does not hold, and
the writer may not impersonate that user, the writer may change only the display name and description. This also holds on
creation, because bindings may exist before their user. Besides:

- Token: creating one for another user, or for groups, requires the right to impersonate them. The fields that name its user and
  its secret are immutable; extending its lifetime or scope requires the right to impersonate its user.
- User: a login name is one visible word that no other user has. A User holds no password. Only a writer who may do everything
  sets who a user is with a login provider, since roles are given to that.

A writer who may do everything, the server's own controllers among them, may do all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from remuda.api.management_cattle_io import GROUP, USERS, VERSION
from remuda.kube.admission_attributes import CREATE, DELETE, Attributes
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import MASTERS, User
from remuda.kube.errors import FieldError, duplicate, forbidden_field, invalid_value, required
from remuda.kube.objects import ObjectSource, metadata, name_of
from remuda.runtime.admitted_types import AdmittedType

from .user_objects import local_principal, name_problem

Obj = dict[str, Any]

_IMMUTABLE = "field is immutable"
# Fields of a token that never change, and those that extend its lifetime or scope.
_WHOSE = ("userId", "token", "authProvider", "userPrincipal", "groupPrincipals", "isDerived")
_HOW_FAR = ("ttl", "expiresAt", "expired", "clusterName")


# Fields of a user that every writer of users may change: they do not say who the user is.
_WORDS = ("displayName", "description")


class HeldPermissions(Protocol):
    """The permissions of users (:class:`~..roles.holdings.Holdings`)."""

    def may_stand_for(self, user: User, name: str) -> bool:
        """True if `user` has all permissions of the user `name`, or may impersonate that user."""


class IdentityRules:
    def __init__(self, source: ObjectSource, rbac: Rbac, held: HeldPermissions) -> None:
        self._source = source
        self._authorizer = rbac
        self._held = held

    def admitted_types(self) -> tuple[AdmittedType, ...]:
        return (
            AdmittedType(GROUP, VERSION, "tokens", "Token", validate=self.token, validates_deletion=True),
            AdmittedType(GROUP, VERSION, "users", "User", validate=self.user, validates_deletion=True),
        )

    # --- tokens -----------------------------------------------------------------------------------------------------------

    def token(self, attributes: Attributes) -> Iterable[FieldError]:
        token, old = attributes.obj or {}, attributes.old or {}
        if attributes.operation == CREATE:
            return self._new_token(attributes.user, token)
        if self._may_everything(attributes.user):
            return []
        self._check_not_above(attributes, str(old.get("userId") or ""))
        if attributes.operation == DELETE:
            return []
        errors = [forbidden_field(name, _IMMUTABLE) for name in _WHOSE if _differs(token, old, name)]
        wider = [name for name in _HOW_FAR if _differs(token, old, name)]
        if wider and not self._may_be(attributes.user, "users", str(old.get("userId") or "")):
            errors += [forbidden_field(name, "only users who may impersonate the token's user may change this") for name in wider]
        return errors

    def _new_token(self, user: User, token: Obj) -> list[FieldError]:
        owner = str(token.get("userId") or "")
        if not owner:
            return [required("userId", "a token must belong to a user")]
        errors: list[FieldError] = []
        if owner != user.name and not self._may_be(user, "users", owner):
            errors.append(forbidden_field("userId", "only users who may impersonate that user may create a token for them"))
        for index, group in enumerate(token.get("groupPrincipals") or ()):
            if not self._may_be(user, "groups", _principal(group)):
                errors.append(
                    forbidden_field(f"groupPrincipals[{index}]", "only users who may impersonate that group may set this")
                )
        return errors

    def _may_be(self, user: User, kind: str, name: str) -> bool:
        return self._allowed(Action(user, "impersonate", "", "v1", kind, name=name))

    # --- users ------------------------------------------------------------------------------------------------------------

    def user(self, attributes: Attributes) -> Iterable[FieldError]:
        user, old = attributes.obj or {}, attributes.old or {}
        if attributes.operation in (CREATE, DELETE) or _but_for_words(user) != _but_for_words(old):
            self._check_not_above(attributes, attributes.name or name_of(user))
        if attributes.operation == DELETE:
            return []
        errors = self._username_errors(user, old)
        if user.get("password") and _differs(user, old, "password"):
            errors.append(
                forbidden_field("password", "passwords are kept in Secrets: set it by the action setpassword of /v3/users")
            )
        return [*errors, *self._principal_errors(attributes.user, user, old)]

    def _username_errors(self, user: Obj, old: Obj) -> list[FieldError]:
        name = user.get("username") or ""
        if not name or name == old.get("username"):
            return []
        if problem := name_problem(name):
            return [invalid_value("username", name, problem)]
        others = self._source.list(GROUP, USERS.resource)
        if any(other.get("username") == name and name_of(other) != name_of(user) for other in others):
            return [duplicate("username", name)]
        return []

    def _principal_errors(self, who: User, user: Obj, old: Obj) -> list[FieldError]:
        known = {local_principal(name_of(user)), *(old.get("principalIds") or ())}
        added = [(index, found) for index, found in enumerate(user.get("principalIds") or ()) if found not in known]
        if not added or self._may_everything(who):
            return []
        why = "only users with all permissions may set a user's principals with a login provider"
        return [forbidden_field(f"principalIds[{index}]", why) for index, _ in added]

    def _check_not_above(self, attributes: Attributes, name: str) -> None:
        """Raises for a user who holds more than the writer."""
        if not self._held.may_stand_for(attributes.user, name):
            raise attributes.forbidden("the user has permissions that you lack")

    def _may_everything(self, user: User) -> bool:
        # A user who may act as one who may do everything, may do everything.
        return self._allowed(Action(user, "*", "*", "*", "*")) or self._may_be(user, "groups", MASTERS)

    def _allowed(self, action: Action) -> bool:
        return MASTERS in action.user.groups or self._authorizer.authorize(action).allowed


def _differs(new: Obj, old: Obj, name: str) -> bool:
    """Treats empty and absent fields alike."""
    return (new.get(name) or None) != (old.get(name) or None)


def _but_for_words(user: Obj) -> Obj:
    """The User without its texts for people. Its metadata is included: deleting an owner deletes the user."""
    meta = {key: value for key, value in metadata(user).items() if key not in ("managedFields", "resourceVersion", "generation")}
    rest = {key: value for key, value in user.items() if key not in ("metadata", *_WORDS) and value}
    return {**rest, "enabled": user.get("enabled") is not False, "metadata": {key: value for key, value in meta.items() if value}}


def _principal(found: object) -> str:
    if not isinstance(found, dict):
        return ""
    metadata = found.get("metadata")
    named = metadata.get("name") if isinstance(metadata, dict) else None
    return str(named or found.get("name") or "")


def admitted(source: ObjectSource, rbac: Rbac, held: HeldPermissions) -> tuple[AdmittedType, ...]:
    return IdentityRules(source, rbac, held).admitted_types()
