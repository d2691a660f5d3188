"""Asking providers what they have of ours: with the credentials and in the places that machines and their templates name."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.access.settings.settings import OUTBOUND, Settings
from remuda.api.management_cattle_io import SETTINGS
from remuda.client.interface import Client
from remuda.kube.builtin_resources import NAMESPACES, SECRETS
from remuda.kube.errors import ApiError
from remuda.kube.network.outbound import Policy
from remuda.kube.objects import Key, dig, name_of, namespace_of
from remuda.machines import driver_registry
from remuda.machines import options as credential_variables
from remuda.machines.driver import Driver, DriverContext, DriverError, Found, Options
from remuda.machines.drivers.local import HOSTS_VARIABLE, Local
from remuda.machines.machineprovision.job_arguments import instance_name
from remuda.machines.options import flag_of
from remuda.machines.secretfields.vault import opened
from remuda.provisioning.references.cloud_credentials import GLOBAL
from remuda.provisioning.well_known import MACHINE_API_VERSION, resource_of

from ..exit_codes import Code, Failure


async def search(client: Client, chosen: str, elsewhere: SearchScope | None, here: Mapping[str, str]) -> Search:
    """Orphans of all drivers in Python, or the `chosen` one; and `elsewhere`, where no machine leads. `here` is the environment
    that drivers have on this machine. Raises ApiError, and Failure."""
    result = Search()
    owner = str(dig(await client.get(NAMESPACES, "kube-system"), "metadata", "uid") or "")
    served = await _served(client)
    if chosen and chosen not in served:
        known = f"there are {', '.join(served)}" if served else "there are none"
        raise Failure(f"there is no node driver {chosen} that is active: {known}", Code.NOT_FOUND)
    for name in served:
        if chosen and name != chosen:
            continue
        try:
            driver = driver_registry.find(name)
        except DriverError as error:
            result.problems.append(str(error))
            continue
        if driver is not None:
            await _of_driver(client, driver, owner, elsewhere, result, here)
        elif chosen or await _listed(client, name, "MachineTemplate"):
            result.problems.append(f"{name}: only rancher-machine has this driver, and it lists nothing")
    return result


def with_hosts(*data_dirs: Path | None) -> dict[str, str]:
    """The environment, and where the driver `local` has its machines: below the first of these that is a server's data directory
    and that this user can look into."""
    servers = [each.absolute() for each in data_dirs if each is not None and os.access(each / "kubeconfig", os.R_OK)]
    return {**({HOSTS_VARIABLE: str(servers[0] / "hosts")} if servers else {}), **os.environ}


async def _listed(client: Client, driver: str, suffix: str) -> list[Obj]:
    kind = driver[:1].upper() + driver[1:] + suffix
    return list((await client.list(resource_of(MACHINE_API_VERSION, kind))).get("items") or ())


async def _served(client: Client) -> list[str]:
    """The drivers that there are kinds of."""
    try:
        found = await client.raw("GET", f"/apis/{MACHINE_API_VERSION}")
    except ApiError as error:
        if error.is_not_found:
            return []
        raise
    kinds = {str(each.get("kind") or "") for each in found.get("resources") or ()}
    return sorted(kind.removesuffix("Machine").lower() for kind in kinds if kind.endswith("Machine"))


async def _of_driver(
    client: Client, driver: type[Driver], owner: str, elsewhere: SearchScope | None, result: Search, here: Mapping[str, str]
) -> None:
    if driver is Local and HOSTS_VARIABLE not in here:
        where = "in the server's data directory: run this on its machine as its user, with --data-dir DIR"
        result.problems.append(f"{driver.name}: its hosts are {where}")
        return
    machines, templates = [await _listed(client, driver.name, suffix) for suffix in ("Machine", "MachineTemplate")]
    places = set[SearchScope]()
    for each in (*machines, *templates):
        try:
            places.add(place_of(driver, await opened(client, each, driver.file_fields), GLOBAL))
        except ApiError as error:
            result.problems.append(f"{driver.name}: the sealed fields of {name_of(each)} can't be read: {error.message}")
    if elsewhere is not None and elsewhere.driver == driver.name:
        places.add(elsewhere)
    if not driver.private_fields and not places:
        # It needs no credential, so there is one place.
        places.add(SearchScope(driver.name))
    known = {instance_name(each) for each in machines}
    found = []
    for place in sorted(places, key=lambda each: (str(each.credential), each.fields)):
        try:
            environ = await _environment(client, place)
            around = DriverContext(environ={**here, **environ}, outbound=await _outbound(client, here))
            found += await found_at(driver, place, environ, owner, around)
        except DriverError as error:
            result.problems.append(f"{driver.name}: {error}")
        except ApiError as error:
            result.problems.append(f"{driver.name}: the cloud credential {place.credential} can't be read: {error.message}")
    result.orphans += without_machine(driver.name, found, known)


async def _outbound(client: Client, here: Mapping[str, str]) -> Policy:
    """The addresses that may be connected to: the server's own policy. The options that are read here are tenants'."""
    try:
        return Settings([await client.get(SETTINGS, OUTBOUND)], here).outbound()
    except ApiError as error:
        if not error.is_not_found and error.code != 403:
            raise
        return Settings(environment=here).outbound()


async def _environment(client: Client, place: SearchScope) -> dict[str, str]:
    if place.credential is None:
        return {}
    secret = await client.get(SECRETS, place.credential.name, place.credential.namespace)
    data = {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
    return credential_variables.environment(place.driver, data)


def elsewhere_of(driver: str, credential: str, options: tuple[str, ...]) -> SearchScope | None:
    """Parses the arguments of the command line. Raises ValueError."""
    if not driver:
        if credential or options:
            raise ValueError("--credential and --set are for one --driver")
        return None
    if not credential and not options:
        return None
    said = dict(each.partition("=")[::2] for each in options)
    if any("=" not in each for each in options):
        raise ValueError("--set takes FIELD=VALUE, as in region=us-west-2")
    namespace, colon, name = credential.partition(":")
    key = (Key(namespace, name) if colon else Key(GLOBAL, credential)) if credential else None
    return SearchScope(driver, key, json.dumps(said, sort_keys=True))


# --- orphans ---------------------------------------------------------------------------------------------------------------
#
# Orphans: resources of ours at a provider that belong to no machine any more, but are still paid for.
#
# A driver marks all that it makes with its owner (:data:`remuda.machines.driver.OWNER_VARIABLE`) and lists it again. The
# machines and templates that exist, or the caller, say where it looks (region, project, credential).

Obj = dict[str, Any]

_NOT_OPTIONS = frozenset({"common", "providerID"})


@dataclass(frozen=True, slots=True)
class SearchScope:
    """A place for a driver to search: `credential` is the Secret that it uses, `fields` (as JSON) the fields of machine
    configs."""

    driver: str
    credential: Key | None = None
    fields: str = "{}"


@dataclass(frozen=True, slots=True)
class Orphan:
    driver: str
    found: Found


@dataclass(slots=True)
class Search:
    """The orphans that were found, and the places that could not be searched, with reasons."""

    orphans: list[Orphan] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def place_of(driver: type[Driver], obj: Obj, global_credentials: str) -> SearchScope:
    """The place of a machine or a template: its credential, and all options that are no files."""
    spec = dig(obj, "spec", "template", "spec") or obj.get("spec") or {}
    known = {flag.name for flag in driver.flags}
    said = {
        name: value
        for name, value in spec.items()
        if name not in _NOT_OPTIONS and name not in driver.file_fields and value and flag_of(driver.name, name) in known
    }
    named = str(dig(spec, "common", "cloudCredentialSecretName") or "")
    namespace, colon, rest = named.partition(":")
    key = Key(namespace, rest) if colon and namespace == global_credentials else Key(namespace_of(obj), named)
    return SearchScope(driver.name, key if named else None, json.dumps(said, sort_keys=True))


async def found_at(
    driver: type[Driver], place: SearchScope, environ: Mapping[str, str], owner: str, around: DriverContext
) -> list[Found]:
    """All of this owner's at a place. Raises DriverError."""
    options = Options.read(driver.name, driver.flags, json.loads(place.fields), environ)
    asked = driver(around)
    try:
        return await asked.owned(options, owner)
    finally:
        await asked.aclose()


def without_machine(driver: str, found: Iterable[Found], known: Collection[str]) -> list[Orphan]:
    """`known` are the names under which the machines that there are were made."""
    listed = {(each.what, each.id): each for each in found if each.machine not in known}
    return [Orphan(driver, listed[key]) for key in sorted(listed)]
