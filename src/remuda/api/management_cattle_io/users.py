"""User and Token: accounts of this server, and their credentials."""

from __future__ import annotations

from typing import Annotated, TypedDict

from ..cattle import Condition, Strings, Text
from ..schema import Doc, Int64, NoEffect, Object, Preserve, Time, rules


class UserStatus(TypedDict, total=False):
    """The observed state of the user."""

    conditions: Annotated[list[Condition], Doc("The state of this object, aspect by aspect.")]


class User(Object, total=False):
    """An account of this server; the name is the user's id."""

    description: Annotated[str, Doc("A description of the account.")]
    displayName: Annotated[str, Doc("The user's name for people.")]
    enabled: Annotated[bool, Doc("The user may log in. Default true.")]
    me: Annotated[bool, NoEffect("Rancher deprecated it")]
    mustChangePassword: Annotated[bool, Doc("The user has to choose another password at the next login.")]
    password: Annotated[str, Doc("Deprecated: passwords are kept in Secrets.")]
    principalIds: Annotated[list[str], Doc("The user's identities with login providers, such as local://u-abc12.")]
    status: UserStatus
    username: Annotated[str, Doc("The login name.")]


@rules(Preserve())
class Principal(TypedDict, total=False):
    """A user or a group of a login provider."""

    displayName: Annotated[Text, Doc("The name for people.")]
    extraInfo: Annotated[Strings, Doc("Further fields of the provider.")]
    loginName: Annotated[Text, Doc("The login name.")]
    me: Annotated[bool | None, Doc("It is who asks.")]
    memberOf: Annotated[bool | None, Doc("The caller is in this group.")]
    principalType: Annotated[Text, Doc("user or group.")]
    profilePicture: Annotated[Text, Doc("The URL of a picture.")]
    profileURL: Annotated[Text, Doc("The URL of a page about them.")]
    provider: Annotated[Text, Doc("The login provider.")]


@rules(Preserve())
class Token(Object, total=False):
    """A user's credential in place of a password; its name is the first half of the bearer token."""

    activityLastSeenAt: Annotated[Time | None, Doc("When the user last did something.")]
    authProvider: Annotated[Text, Doc("The login provider, such as local.")]
    clusterName: Annotated[Text, Doc("The one cluster it is good for; empty: all.")]
    current: Annotated[bool | None, Doc("It is what was shown with this request.")]
    description: Annotated[Text, Doc("A description of its purpose.")]
    enabled: Annotated[bool | None, Doc("It is good. Default true.")]
    expired: Annotated[bool | None, Doc("Its time is over.")]
    expiresAt: Annotated[Text, Doc("When its time is over, in RFC 3339; empty: never.")]
    groupPrincipals: Annotated[list[Principal] | None, Doc("The groups the user was in at login.")]
    isDerived: Annotated[bool | None, Doc("It was made with another token, not by a login.")]
    lastUsedAt: Annotated[Time | None, Doc("When it was last shown.")]
    providerInfo: Annotated[Strings, Doc("Data that the login provider needs again.")]
    token: Annotated[Text, Doc("The second half of what is shown, or the hash of it.")]
    ttl: Annotated[Int64 | None, Doc("The validity, in milliseconds; 0: forever.")]
    userId: Annotated[Text, Doc("The user's id.")]
    userPrincipal: Annotated[Principal | None, Doc("The user's identity at login.")]
