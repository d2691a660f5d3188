"""User and Token: who somebody is, and what they show for it."""

from __future__ import annotations

from typing import Annotated, TypedDict

from ..cattle import Condition, Strings, Text
from ..schema import Doc, Int64, NoEffect, Object, Preserve, Time, rules


class UserStatus(TypedDict, total=False):
    """What became of the user."""

    conditions: Annotated[list[Condition], Doc("The state of this object, aspect by aspect.")]


class User(Object, total=False):
    """Somebody who uses this server; the name is the user's id."""

    description: Annotated[str, Doc("Who it is, in somebody's words.")]
    displayName: Annotated[str, Doc("The user's name for people.")]
    enabled: Annotated[bool, Doc("The user may log in. Default true.")]
    me: Annotated[bool, NoEffect("Rancher deprecated it")]
    mustChangePassword: Annotated[bool, Doc("The user has to choose another password at the next login.")]
    password: Annotated[str, Doc("Deprecated: passwords are kept in Secrets.")]
    principalIds: Annotated[list[str], Doc("Who the user is with each login provider, such as local://u-abc12.")]
    status: UserStatus
    username: Annotated[str, Doc("What the user logs in with.")]


@rules(Preserve())
class Principal(TypedDict, total=False):
    """Somebody, or a group, as a login provider knows them."""

    displayName: Annotated[Text, Doc("The name for people.")]
    extraInfo: Annotated[Strings, Doc("What else the provider says.")]
    loginName: Annotated[Text, Doc("What they log in with.")]
    me: Annotated[bool | None, Doc("It is who asks.")]
    memberOf: Annotated[bool | None, Doc("Who asks is in this group.")]
    principalType: Annotated[Text, Doc("user or group.")]
    profilePicture: Annotated[Text, Doc("The URL of a picture.")]
    profileURL: Annotated[Text, Doc("The URL of a page about them.")]
    provider: Annotated[Text, Doc("The login provider.")]


@rules(Preserve())
class Token(Object, total=False):
    """What a user shows instead of a password; its name is the first half of what is shown."""

    activityLastSeenAt: Annotated[Time | None, Doc("When the user last did something.")]
    authProvider: Annotated[Text, Doc("The login provider, such as local.")]
    clusterName: Annotated[Text, Doc("The one cluster it is good for; empty: all.")]
    current: Annotated[bool | None, Doc("It is what was shown with this request.")]
    description: Annotated[Text, Doc("What it is for, in somebody's words.")]
    enabled: Annotated[bool | None, Doc("It is good. Default true.")]
    expired: Annotated[bool | None, Doc("Its time is over.")]
    expiresAt: Annotated[Text, Doc("When its time is over, in RFC 3339; empty: never.")]
    groupPrincipals: Annotated[list[Principal] | None, Doc("The groups the user was in at login.")]
    isDerived: Annotated[bool | None, Doc("It was made with another token, not by a login.")]
    lastUsedAt: Annotated[Time | None, Doc("When it was last shown.")]
    providerInfo: Annotated[Strings, Doc("What the login provider needs to know again.")]
    token: Annotated[Text, Doc("The second half of what is shown, or the hash of it.")]
    ttl: Annotated[Int64 | None, Doc("How long it is good, in milliseconds; 0: forever.")]
    userId: Annotated[Text, Doc("The user's id.")]
    userPrincipal: Annotated[Principal | None, Doc("Who the user was at login.")]
