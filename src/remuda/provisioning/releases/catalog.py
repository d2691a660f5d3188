"""The arguments and features that each version of a distribution supports (docs/reference/node-plan.md#release-data).

The data has the shape of Rancher's published metadata, by distribution and version, so that the setting `rke-metadata-config`
may replace it by that; besides, arguments that many versions share may be named in `argumentSets` instead of being written
out. An unlisted version is not refused: its servers get every argument that any version has, its agents those of the nearest
version, since K3s' agent stops at an argument that it does not know. :mod:`..planner.render` drops arguments that a version
does not support.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from remuda.capi import kubernetes_versions
from remuda.kube.encoding import jsonio

from . import component_flags, distributions
from .distributions import Runtime

Obj = dict[str, Any]

_FILE = "releases.json"
# Takes the name of any component, and ignores unknown ones.
_OPEN = frozenset(("disable",))
# Arguments with which a distribution does not start if their value is none of the listed ones. Without it the cluster runs as by
# default, so it is left out.
_CLOSED = frozenset(("profile",))
# As these, but a network of another kind than the one that is asked for would be worse than none. They are refused when they are
# written; an older cluster's server says itself why it does not start.
_REFUSED = frozenset(("cni", "flannel-backend"))
# The words of a failure whose cause is a version that does not exist; the version follows.
NO_IMAGE = "there is no installer image of"


class ReleaseError(ValueError):
    """An invalid version, or data without its distribution."""


@dataclass(frozen=True, slots=True)
class Argument:
    """`type` is string, boolean, array, enum …; only booleans are converted."""

    type: str = ""
    default: Any = None
    # The known values; there may be others, in versions that the data does not know.
    options: tuple[str, ...] = ()

    @property
    def is_boolean(self) -> bool:
        return self.type in ("bool", "boolean")


@dataclass(frozen=True, slots=True)
class Release:
    """One version. `known` is false if it is derived from others."""

    version: str
    runtime: Runtime
    server_arguments: Mapping[str, Argument] = field(default_factory=dict)
    agent_arguments: Mapping[str, Argument] = field(default_factory=dict)
    features: Mapping[str, str] = field(default_factory=dict)
    known: bool = True

    def argument(self, name: str, server: bool) -> Argument | None:
        """The argument of that name if a host of the role supports it; servers support agents' arguments too."""
        found = self.agent_arguments.get(name)
        return self.server_arguments.get(name) if found is None and server else found

    def why_ignored(self, name: str, value: Any) -> str:
        """The reason why this argument has no effect on any host; "" if it has one, or asks for nothing."""
        # Rancher's page writes many empty values.
        if not value:
            return ""
        if self.argument(name, server=True) is None:
            return f"{self.version} has no such argument"
        if fatal := self.fatal_values(name, value):
            return f"{self.version} does not start with {', '.join(fatal)}; {'; '.join(dict.fromkeys(fatal.values()))}"
        return "" if is_usable(value) else "its value must be a text, a list, true or false"

    def fatal_values(self, name: str, value: Any) -> Mapping[str, str]:
        """The values with which a host of this version would not start, each with the reason."""
        if self.known and name in _CLOSED:
            return dict.fromkeys(self.unknown_values(name, value), f"known values are {', '.join(self.known_values(name))}")
        major, minor, *_ = _order(self.version)
        said = ((each, component_flags.why_fatal(name, each, f"{major}.{minor}")) for each in _texts(value))
        return {each: why for each, why in said if why}

    def without_fatal(self, name: str, value: Any) -> Any:
        """The value, or what is left of it, that a host of this version would start with; None if that is nothing."""
        fatal = self.fatal_values(name, value)
        if not fatal:
            return value
        return [each for each in _texts(value) if each not in fatal] or None

    def refused_values(self, name: str, value: Any) -> tuple[str, ...]:
        """The values that no cluster of this version may be given: its servers would not start, and have no default instead."""
        return self.unknown_values(name, value) if self.known and name in _REFUSED else ()

    def is_for_servers_only(self, name: str, releases: Releases) -> bool:
        """True for a setting of servers here that the agents of another distribution have, so that users may expect it on all
        hosts."""
        if name in self.agent_arguments or name not in self.server_arguments:
            return False
        others = (each for runtime, listed in releases.by_runtime.items() if runtime != self.runtime.name for each in listed)
        return any(name in each.agent_arguments for each in others)

    def known_values(self, name: str) -> tuple[str, ...]:
        argument = self.argument(name, server=True)
        return argument.options if argument is not None else ()

    def unknown_values(self, name: str, value: Any) -> tuple[str, ...]:
        """The values that the data does not know; none if it lists no values for this argument."""
        options = self.known_values(name)
        if not options or name in _OPEN:
            return ()
        # Some name several at once: `multus,canal`.
        known = {part for option in options for part in (option, *option.split(","))}
        return tuple(each for each in _texts(value) if each not in known)


def _texts(value: Any) -> list[str]:
    """The texts in an argument's value, which is one or a list."""
    listed = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    return [each for each in listed if isinstance(each, str) and each]


def is_usable(value: Any) -> bool:
    """True if plans render an argument's value of that type; see `planner.render.config` on the others."""
    return isinstance(value, str | bool | list | tuple)


@dataclass(frozen=True, slots=True)
class Releases:
    """All known versions, by distribution in the order of versions."""

    by_runtime: Mapping[str, tuple[Release, ...]]

    def versions(self, runtime: Runtime) -> tuple[str, ...]:
        return tuple(release.version for release in self.by_runtime.get(runtime.name, ()))

    def release(self, version: str) -> Release:
        """The release of a version; raises ReleaseError."""
        parsed(version)
        runtime = distributions.of_version(version)
        listed = self.by_runtime.get(runtime.name, ())
        found = next((release for release in listed if release.version == version), None) or _derived(version, runtime, listed)
        if not found.server_arguments or not found.agent_arguments:
            raise ReleaseError(f"KDM release data is empty for {version}")
        return found


def parsed(version: str) -> kubernetes_versions.KubernetesVersion:
    """A Kubernetes version; raises ReleaseError."""
    try:
        return kubernetes_versions.parse(version.removeprefix("v"))
    except kubernetes_versions.VersionError as error:
        raise ReleaseError(f"kubernetesVersion {error}") from None


@cache
def built_in() -> Releases:
    """The data that comes with the program."""
    return read((importlib.resources.files(__package__) / _FILE).read_bytes())


def write(found: Releases) -> bytes:
    """The data as a document, always the same for the same data. Arguments that several versions share are in it once."""
    sets: dict[str, tuple[str, Obj]] = {}

    def named(arguments: Mapping[str, Argument]) -> str:
        said = {name: _said(argument) for name, argument in sorted(arguments.items())}
        return sets.setdefault(jsonio.dumps(said).decode(), (str(len(sets) + 1), said))[0]

    document: Obj = {}
    for name, listed in sorted(found.by_runtime.items()):
        document[name] = {
            "releases": [
                {
                    "version": release.version,
                    "serverArgs": named(release.server_arguments),
                    "agentArgs": named(release.agent_arguments),
                    "featureVersions": dict(release.features),
                }
                for release in listed
            ]
        }
    return jsonio.dumps({"argumentSets": dict(sets.values()), **document})


def _said(argument: Argument) -> Obj:
    found: Obj = {"type": argument.type}
    if argument.default is not None:
        found["default"] = argument.default
    return {**found, "options": list(argument.options)} if argument.options else found


def read(data: bytes | str, beneath: Releases | None = None) -> Releases:
    """The data in a document; distributions missing in it are taken from `beneath`. Raises ReleaseError."""
    try:
        document: Any = jsonio.loads(data)
    except jsonio.JsonError as error:
        raise ReleaseError(f"the release data is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise ReleaseError("the release data is a JSON object with a member for each distribution")
    sets = {name: _arguments(said, {}) for name, said in _mapping(document.get("argumentSets")).items()}
    found = dict(beneath.by_runtime) if beneath else {}
    for runtime in distributions.ALL:
        said = _mapping(document.get(runtime.name)).get("releases")
        if isinstance(said, list) and said:
            releases = _releases(runtime, said, sets)
            found[runtime.name] = tuple(_corrected(release, beneath) for release in releases) if beneath else releases
    return Releases(found)


def _corrected(release: Release, ours: Releases) -> Release:
    """The release without arguments whose place our own data knows better.

    Rancher's published data may list for both commands what only one accepts, or what another distribution has. K3s' agent stops
    at those. Arguments that our data does not have at all are new ones, and are kept.
    """
    of_runtime = ours.by_runtime.get(release.runtime.name, ())
    of_agents = {name for each in of_runtime for name in each.agent_arguments}
    of_servers = {name for each in of_runtime for name in each.server_arguments}
    known = {name for listed in ours.by_runtime.values() for each in listed for name in _names(each)}
    fit = {name: each for name, each in _names(release).items() if name in of_agents | of_servers or name not in known}
    return replace(
        release,
        server_arguments={name: each for name, each in fit.items() if name in of_servers or name in release.server_arguments},
        agent_arguments={
            name: each
            for name, each in fit.items()
            if name in release.agent_arguments and (name in of_agents or name not in known)
        },
    )


def _names(release: Release) -> Mapping[str, Argument]:
    return {**release.agent_arguments, **release.server_arguments}


Sets = Mapping[str, Mapping[str, Argument]]


def _releases(runtime: Runtime, said: list[Any], sets: Sets) -> tuple[Release, ...]:
    made = [_release(runtime, _mapping(entry), sets) for entry in said]
    for release in made:
        parsed(release.version)
    # A version without arguments can be imported, but not provisioned.
    usable = [release for release in made if release.server_arguments or release.agent_arguments]
    return tuple(sorted(usable, key=lambda release: _order(release.version)))


def _release(runtime: Runtime, said: Mapping[str, Any], sets: Sets) -> Release:
    return Release(
        version=str(said.get("version") or ""),
        runtime=runtime,
        server_arguments=_arguments(said.get("serverArgs"), sets),
        agent_arguments=_arguments(said.get("agentArgs"), sets),
        features={name: str(value) for name, value in sorted(_mapping(said.get("featureVersions")).items())},
    )


def _arguments(said: Any, sets: Sets) -> Mapping[str, Argument]:
    if isinstance(said, str):
        if said not in sets:
            raise ReleaseError(f"the release data names the arguments {said!r}, which it does not hold")
        return sets[said]
    entries = sorted(_mapping(said).items())
    return {name: _argument(_mapping(entry)) for name, entry in entries}


def _argument(said: Mapping[str, Any]) -> Argument:
    options = said.get("options")
    known = tuple(each for each in options if isinstance(each, str)) if isinstance(options, list) else ()
    return Argument(str(said.get("type") or ""), said.get("default"), known)


def _derived(version: str, runtime: Runtime, listed: Sequence[Release]) -> Release:
    """An unlisted version."""
    server: dict[str, Argument] = {}
    features: dict[str, str] = {}
    for release in listed:
        server |= {**release.agent_arguments, **release.server_arguments}
        features |= release.features
    older = [release for release in listed if _order(release.version) <= _order(version)]
    nearest = older[-1:] or listed[:1]
    agent = nearest[0].agent_arguments if nearest else {}
    return Release(version, runtime, server, agent, features, known=False)


def _order(version: str) -> tuple[int, int, int, str]:
    try:
        found = kubernetes_versions.parse(version.removeprefix("v"))
    except kubernetes_versions.VersionError:
        return (0, 0, 0, version)
    return (found.major, found.minor, found.patch, version)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
