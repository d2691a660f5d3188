"""PodSecurityAdmissionConfigurationTemplate: what the API servers of clusters that name it ask of pods, unless a namespace says
otherwise."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...schema import Doc, Object

_Level = Annotated[str, Doc("privileged, baseline or restricted.")]
_Version = Annotated[str, Doc("Of which Kubernetes that level is: latest, or v1 and a minor version.")]

PodSecurityDefaults = TypedDict(
    "PodSecurityDefaults",
    {
        "audit": _Level,
        "audit-version": _Version,
        "enforce": _Level,
        "enforce-version": _Version,
        "warn": _Level,
        "warn-version": _Version,
    },
    total=False,
)
PodSecurityDefaults.__doc__ = "What holds in namespaces that say nothing themselves."


class PodSecurityExemptions(TypedDict, total=False):
    """What is let through unseen."""

    namespaces: Annotated[list[str], Doc("Pods in these namespaces.")]
    runtimeClasses: Annotated[list[str], Doc("Pods of these runtime classes.")]
    usernames: Annotated[list[str], Doc("What these users make.")]


class PodSecurityConfiguration(TypedDict, total=False):
    """What is asked of pods."""

    defaults: Annotated[PodSecurityDefaults, Doc("What holds in namespaces that say nothing themselves.")]
    exemptions: Annotated[PodSecurityExemptions, Doc("What is let through unseen.")]


class PodSecurityAdmissionConfigurationTemplate(Object, total=False):
    """What is asked of pods in clusters that name it."""

    configuration: Required[Annotated[PodSecurityConfiguration, Doc("What is asked of pods.")]]
    description: Annotated[str, Doc("What it is for.")]
