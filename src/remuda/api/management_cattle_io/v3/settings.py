"""Setting and Feature: what an administrator can choose."""

from __future__ import annotations

from typing import Annotated, TypedDict

from ...cattle import Text
from ...schema import Doc, Object


class Setting(Object, total=False):
    """Something that can be chosen, by name."""

    customized: Annotated[bool, Doc("Somebody chose a value.")]
    default: Annotated[Text, Doc("What holds when nothing was chosen.")]
    source: Annotated[Text, Doc("Where the value comes from: db, default or env.")]
    value: Annotated[Text, Doc("What was chosen; empty: the default holds.")]


class FeatureSpec(TypedDict, total=False):
    """What was chosen."""

    value: Annotated[bool | None, Doc("On or off; unset: the default holds.")]


class FeatureStatus(TypedDict, total=False):
    """What can be chosen."""

    default: Annotated[bool, Doc("What holds when nothing was chosen.")]
    description: Annotated[Text, Doc("What it is for.")]
    dynamic: Annotated[bool, Doc("It can be changed without a restart.")]
    lockedValue: Annotated[bool | None, Doc("What must hold for now, whatever was chosen.")]
    prime: Annotated[bool, Doc("It is there with a subscription only.")]


class Feature(Object, total=False):
    """A part of the server that can be switched on or off."""

    spec: FeatureSpec
    status: FeatureStatus
