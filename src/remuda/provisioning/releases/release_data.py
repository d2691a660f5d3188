"""Release data that replaces ours, by the setting `rke-metadata-config` (docs/reference/node-plan.md#release-data).

The setting has a URL and an interval, or the data itself. Valid data is stored in a ConfigMap, reduced to what planning needs: a
server that starts while the URL is unreachable plans with the earlier data; otherwise all hosts would get other arguments, and
restart. For the same reason unreadable data changes nothing, but is reported. :class:`ReleaseData` writes the ConfigMap;
:class:`StoredReleases` reads it for the planner, :class:`KnownReleases` for admission; :mod:`.catalog` defines its format.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import ssl
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, Final

from remuda.access.agent_objects import NAMESPACE
from remuda.access.settings.settings import Settings
from remuda.api.management_cattle_io import GROUP, SETTINGS
from remuda.client.download import FetchError, fetched
from remuda.client.idempotent import discard, find, make
from remuda.client.interface import Client
from remuda.client.proxies import proxy_for
from remuda.kube.builtin_resources import CONFIG_MAPS
from remuda.kube.clock import Clock
from remuda.kube.encoding import jsonio
from remuda.kube.network.outbound import Policy
from remuda.kube.network.outbound_http import Current
from remuda.kube.objects import Key, ObjectSource, dig, name_of, resource_version_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, WARNING, Controller, Informer, Manager, Result, Watch, logger, synced

from . import catalog
from .catalog import ReleaseError, Releases
from .distributions import RELEASES_SETTING

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER: Final = "release-data"
SETTING: Final = RELEASES_SETTING
NAME: Final = "remuda-release-data"
KEPT: Final = (CONFIG_MAPS, Key(NAMESPACE, NAME))

_CONTENT = "releases.json.gz"
_FETCH_WITHIN, _LARGEST, _REDIRECTS = 120.0, 32 << 20, 5
# A ConfigMap may hold a mebibyte, and base64 makes it longer.
_LARGEST_KEPT = 700 << 10
_AGAIN = 300.0

# Returns the content of a URL; raises FetchError.
Fetch = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class ReleaseSource:
    """The source of data: a URL, fetched every `every` seconds (0: once); or inline; or neither, for our own data."""

    url: str = ""
    every: float = 0.0
    inline: str = ""


def source_of(setting: str) -> ReleaseSource:
    """The source in a setting that its own rule has validated."""
    said = jsonio.loads(setting)
    if "url" not in said:
        return ReleaseSource(inline=setting)
    return ReleaseSource(said["url"], 60.0 * int(said.get("refresh-interval-minutes") or 0))


def fetcher(clock: Clock, environment: Mapping[str, str], policy: Current = Policy.for_administrators) -> Fetch:
    """Downloads with the system's trusted CAs and the environment's proxy, from addresses that the policy permits."""

    async def fetch(url: str) -> bytes:
        return await fetched(
            url,
            clock,
            context=ssl.create_default_context(),
            proxy=proxy_for(url, environment),
            within=_FETCH_WITHIN,
            largest=_LARGEST,
            redirects=_REDIRECTS,
            policy=policy(),
        )

    return fetch


def is_kept_data(obj: Obj) -> bool:
    return Key.of(obj) == Key(NAMESPACE, NAME)


def _is_gone(new: Obj | None, old: Obj | None) -> bool:
    return new is None and old is not None and is_kept_data(old)


class ReleaseData:
    controller = Controller(
        CONTROLLER,
        SETTINGS,
        watches=(Watch(CONFIG_MAPS, lambda _: (Key("", SETTING),), _is_gone, metadata_only=True),),
        when=lambda new, old: name_of(new or old or {}) == SETTING,
    )

    def __init__(self, manager: Manager, fetch: Fetch, environment: Mapping[str, str] | None = None) -> None:
        self._client = manager.client
        self._settings: Informer = manager.informers.of(SETTINGS)
        self._config_maps = manager.informers.of(CONFIG_MAPS, metadata_only=True)
        self._events = manager.recorder(CONTROLLER)
        self._fetch = fetch
        self._environment = environment or {}
        self._clock = manager.clock
        # The last source, and the time of its next fetch.
        self._looked: tuple[ReleaseSource, float] = (ReleaseSource(), 0.0)

    async def reconcile(self, key: Key) -> Result:
        await synced(self._settings, self._config_maps)
        source = source_of(Settings(self._settings.objects(), self._environment).text(SETTING))
        rest = self._looked[1] - self._clock.monotonic()
        if self._looked[0] == source and rest > 0 and self._config_maps.get(NAMESPACE, NAME) is not None:
            return Result(rest) if isfinite(rest) else DONE
        if not source.url and not source.inline:
            if await find(self._client, CONFIG_MAPS, NAME, NAMESPACE) is not None:
                await discard(self._client, CONFIG_MAPS, NAME, NAMESPACE)
            return DONE
        try:
            found = catalog.read(source.inline or await self._fetch(source.url))
            if not any(found.by_runtime.values()):
                raise ReleaseError("the release data has no version in it that can be provisioned")
            await self._keep(found)
        except (FetchError, ReleaseError) as error:
            return self._unusable(key, source, str(error))
        self._looked = (source, self._clock.monotonic() + (source.every or inf))
        return Result(source.every) if source.every else DONE

    def _unusable(self, key: Key, source: ReleaseSource, why: str) -> Result:
        why = f"{SETTING}: {why}; what was known before holds"
        log.warning("%s", why)
        setting = self._settings.get(*key)
        if setting is not None:
            self._events.event(setting, WARNING, "ReleaseDataUnusable", why)
        wait = Wait(Code.RELEASE, Ref(GROUP, "Setting", "", SETTING), Actor.USER, None, why)
        return Result(min(source.every or _AGAIN, _AGAIN), (wait,))

    async def _keep(self, found: Releases) -> None:
        content = gzip.compress(catalog.write(found), mtime=0)
        if len(content) > _LARGEST_KEPT:
            raise ReleaseError(f"the release data is too large to be kept: {len(content)} bytes, {_LARGEST_KEPT} at most")
        data = {"binaryData": {_CONTENT: base64.b64encode(content).decode()}}
        stored = await find(self._client, CONFIG_MAPS, NAME, NAMESPACE)
        if stored is not None and dig(stored, "binaryData", _CONTENT) == data["binaryData"][_CONTENT]:
            return
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": NAMESPACE}, **data}
        if stored is None and await make(self._client, CONFIG_MAPS, obj, CONTROLLER) is not None:
            log.info("release data was taken from %s", SETTING)
            return
        await self._client.patch(CONFIG_MAPS, NAME, data, NAMESPACE, field_manager=CONTROLLER)
        log.info("release data was renewed from %s", SETTING)


class KnownReleases:
    """The release data that holds, for checks that can't wait: the built-in data, or that of the ConfigMap where the setting asks
    for other data. Read again when the ConfigMap has changed."""

    def __init__(self, source: ObjectSource) -> None:
        self._source = source
        self._version = ""
        self._current: Releases | None = None

    def current(self) -> Releases | None:
        """The data in use; None while other data is requested and none is stored."""
        if not (self._source.get(GROUP, SETTINGS.resource, "", SETTING) or {}).get("value"):
            return catalog.built_in()
        stored = self._source.get(CONFIG_MAPS.group, CONFIG_MAPS.resource, NAMESPACE, NAME)
        if stored is None:
            return None
        if self._current is None or resource_version_of(stored) != self._version:
            self._current, self._version = _content(stored, self._current), resource_version_of(stored)
        return self._current


class StoredReleases:
    """The ConfigMap's data, over the built-in data; read again when it has changed."""

    def __init__(self, client: Client, config_maps: Informer) -> None:
        """`config_maps` may be without content."""
        self._client = client
        self._config_maps = config_maps
        self._version = ""
        self._current = catalog.built_in()

    async def current(self) -> Releases:
        seen = self._config_maps.get(NAMESPACE, NAME)
        version = "" if seen is None else resource_version_of(seen)
        if version != self._version:
            self._current = catalog.built_in() if seen is None else await kept(self._client, self._current)
            self._version = version
        return self._current


async def kept(client: Client, fallback: Releases | None = None) -> Releases:
    """The ConfigMap's data, over the built-in data; `fallback` if it can't be read."""
    stored = await find(client, CONFIG_MAPS, NAME, NAMESPACE)
    return catalog.built_in() if stored is None else _content(stored, fallback)


def _content(stored: Obj, fallback: Releases | None) -> Releases:
    try:
        content = base64.b64decode(dig(stored, "binaryData", _CONTENT) or "")
        return catalog.read(gzip.decompress(content), catalog.built_in())
    except (ReleaseError, OSError, EOFError, zlib.error, binascii.Error, TypeError) as error:
        log.warning("ConfigMap %s/%s is not used, for it can't be read: %s", NAMESPACE, NAME, error)
        return fallback or catalog.built_in()
