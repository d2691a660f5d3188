"""Droplets of DigitalOcean: an SSH key, the droplet, its addresses.

The API has no client tokens. So a droplet has its machine's token as a tag from the first moment, and the time of the request is
kept before it is made. After an interrupted request the driver looks for the droplet until `_SETTLING` is over, and only then
requests it again. If there are two all the same, the older stays and the others are deleted before they are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...driver import Driver, DriverContext, Found, Keep, Machine, Options, State
from ...errors import DriverError, Reason
from ...options import Flag, FlagKind
from . import ssh_keys
from .client import Api, DigitalOceanRefused
from .ssh_keys import ensure_ssh_key, owned_keys, remove_ssh_key

# --- flags ----------------------------------------------------------------------------------------------------------------
#
# The flags: names, kinds, defaults and variables of rancher-machine (docs/reference/machines.md#flags).


def _flag(
    name: str, usage: str, kind: FlagKind = FlagKind.STRING, default: str | int | None = None, *, secret: bool = False
) -> Flag:
    variable = f"DIGITALOCEAN_{name.upper().replace('-', '_')}"
    return Flag(f"digitalocean-{name}", kind, default, usage, variable, secret=secret)


FLAGS: tuple[Flag, ...] = (
    _flag("access-token", "Digital Ocean access token", secret=True),
    _flag("ssh-user", "SSH username", default="root"),
    _flag("ssh-key-fingerprint", "SSH key fingerprint"),
    _flag("ssh-key-path", "SSH private key path "),
    _flag("ssh-port", "SSH port", FlagKind.INT, 22),
    _flag("image", "Digital Ocean Image", default="ubuntu-20-04-x64"),
    _flag("region", "Digital Ocean region", default="nyc3"),
    _flag("size", "Digital Ocean size", default="s-1vcpu-1gb"),
    _flag("ipv6", "enable ipv6 for droplet", FlagKind.BOOL),
    _flag("private-networking", "enable private networking for droplet", FlagKind.BOOL),
    _flag("backups", "enable backups for droplet", FlagKind.BOOL),
    _flag("userdata", "path to file with cloud-init user-data"),
    _flag("monitoring", "enable monitoring for droplet", FlagKind.BOOL),
    _flag("tags", "comma-separated list of tags to apply to the Droplet"),
)


# --- driver ---------------------------------------------------------------------------------------------------------------

# How long a droplet may need to be seen.
_SETTLING = 60.0
_PAUSE = 5.0
_ADDRESS_POLLS, _GONE_POLLS, _REQUESTS = 60, 60, 3
_USERDATA_LIMIT = 64 * 1024
_DROPLETS = "/v2/droplets"
_STATES = {"new": State.STARTING, "active": State.RUNNING, "off": State.STOPPED, "archive": State.STOPPED}

Droplet = dict[str, Any]


class DigitalOcean(Driver):
    name = "digitalocean"
    title = "DigitalOcean"
    flags = FLAGS
    private_fields = ("accessToken",)
    file_fields = {"sshKeyContents": "sshKeyPath", "userdata": "userdata"}

    def __init__(self, surroundings: DriverContext | None = None) -> None:
        super().__init__(surroundings)
        self._apis: dict[str, Api] = {}

    def restored(self, state: Mapping[str, Any]) -> Mapping[str, object]:
        read = {"ssh-key-fingerprint": state.get("SSHKeyFingerprint"), "region": state.get("Region")}
        if not self.around.environ.get("DIGITALOCEAN_ACCESS_TOKEN"):
            # Ours never is in a state.
            read["access-token"] = state.get("AccessToken")
        return {name: value for name, value in read.items() if value}

    async def precreate(self, machine: Machine) -> None:
        options = machine.options
        _userdata(options)
        ssh_keys.parsed(options.text("tags"))
        if options.text("ssh-key-path") and not options.text("ssh-key-fingerprint"):
            message = "sshKeyContents needs the sshKeyFingerprint of a key that DigitalOcean has"
            raise DriverError(Reason.INVALID, message, field="sshKeyFingerprint")
        api = self._api(options)
        region, size = options.text("region"), options.text("size")
        known = {str(one["slug"]): one async for one in api.every("/v2/regions", "regions", "looking for the region")}
        if region not in known:
            raise DriverError(Reason.NOT_FOUND, f"DigitalOcean has no region {region}; it has {_some(known)}", field="region")
        if not known[region].get("available", True):
            raise DriverError(Reason.OUT_OF_CAPACITY, f"the region {region} takes no new droplets just now", field="region")
        sizes = [str(one) for one in known[region].get("sizes") or ()]
        if sizes and size not in sizes:
            raise DriverError(Reason.INVALID, f"the region {region} has no size {size}; it has {_some(sizes)}", field="size")
        image = options.text("image")
        if await api.find(f"/v2/images/{image}", "looking for the image") is None:
            raise DriverError(Reason.NOT_FOUND, f"DigitalOcean has no image {image}", field="image")

    async def create(self, machine: Machine, keep: Keep) -> None:
        api = self._api(machine.options)
        droplet = int(machine.state.get("DropletID") or 0)
        if not droplet:
            droplet = await self._make(api, machine, keep)
        await self._await_address(api, machine, keep, droplet)
        if int(machine.state.get("LaunchRequests") or 0) > 1:
            await self._settle(api, machine, keep)

    async def remove(self, machine: Machine, keep: Keep) -> None:
        api = self._api(machine.options)
        kept = int(machine.state.get("DropletID") or 0)
        # With a known number there is no need to wait; others with the token are visible by now, if ever.
        found = await _tagged(api, machine) if kept else await self._seen(api, machine)
        for droplet in sorted({*([kept] if kept else ()), *(int(one["id"]) for one in found)}):
            self.around.say(f"removing the droplet {droplet}")
            await api.delete(f"{_DROPLETS}/{droplet}", f"removing the droplet {droplet}")
            await self._await_gone(api, droplet)
        await remove_ssh_key(api, machine)
        if machine.token:
            # Tags remain after their resources.
            await api.delete(f"/v2/tags/{ssh_keys.token_tag(machine.token)}", "removing the machine's tag")

    async def state(self, machine: Machine) -> State:
        api = self._api(machine.options)
        kept = int(machine.state.get("DropletID") or 0)
        if kept:
            answer = await api.find(f"{_DROPLETS}/{kept}", f"looking at the droplet {kept}")
            found = [answer["droplet"]] if answer else []
        else:
            found = await _tagged(api, machine)
        return _STATES.get(str(found[0].get("status")), State.ERROR) if found else State.NOT_FOUND

    async def owned(self, options: Options, owner: str) -> list[Found]:
        api = self._api(options)
        path = f"{_DROPLETS}?tag_name={ssh_keys.owner_tag(owner)}"
        found = [_found(one) async for one in api.every(path, "droplets", "looking for our droplets")]
        for key, machine, token in await owned_keys(api, owner):
            found.append(Found(str(key["id"]), machine, token, "SSH key"))
        return found

    async def verify(self, options: Options) -> None:
        api = Api(options.text("access-token"), self.around, tries=1)
        try:
            await api.get("/v2/account", "identifying the DigitalOcean account")
        except DigitalOceanRefused as error:
            # A token that may not read the account is known all the same.
            if error.status != 403:
                raise
        finally:
            await api.close()

    async def aclose(self) -> None:
        for api in self._apis.values():
            await api.close()

    def _api(self, options: Options) -> Api:
        token = options.text("access-token")
        if token not in self._apis:
            self._apis[token] = Api(token, self.around)
        return self._apis[token]

    async def _make(self, api: Api, machine: Machine, keep: Keep) -> int:
        options = machine.options
        await keep({"Image": options.text("image"), "Region": options.text("region"), "Size": options.text("size")})
        key = await ensure_ssh_key(api, machine, keep)
        asked = _request(machine, key)
        while True:
            made = int(machine.state.get("LaunchRequests") or 0)
            if machine.state.get("LaunchBegun") and await self._seen(api, machine):
                self.around.say("going on with a droplet that an earlier try made")
                return await self._settle(api, machine, keep)
            if made >= _REQUESTS:
                raise _never_answered()
            await keep({"LaunchBegun": int(self.around.clock.time()), "LaunchRequests": made + 1})
            self.around.say(f"making the droplet {machine.name} in {options.text('region')}")
            try:
                answer = await api.make(_DROPLETS, asked, "making the droplet")
                droplet = int(answer["droplet"]["id"])
                await keep({"DropletID": droplet})
                return droplet
            except DigitalOceanRefused as error:
                if not error.uncertain:
                    await keep({"LaunchBegun": 0, "LaunchRequests": made})
                    raise
                self.around.say(f"{error.message}; looking whether it was made")

    async def _settle(self, api: Api, machine: Machine, keep: Keep) -> int:
        """Keep one of the droplets with the machine's token, and delete the others."""
        found = [int(one["id"]) for one in await _tagged(api, machine)]
        kept = int(machine.state.get("DropletID") or 0) or found[0]
        await keep({"DropletID": kept})
        for droplet in found:
            if droplet != kept:
                await api.delete(f"{_DROPLETS}/{droplet}", f"removing the droplet {droplet}, which was made twice")
        return kept

    async def _seen(self, api: Api, machine: Machine) -> list[Droplet]:
        """The droplets with the machine's token, looked for until everything that was requested must be visible."""
        begun = float(machine.state.get("LaunchBegun") or 0)
        while True:
            found = await _tagged(api, machine)
            # Also when this machine's clock was set back meanwhile.
            if found or not 0 <= self.around.clock.time() - begun < _SETTLING:
                return found
            await self.around.clock.sleep(_PAUSE)

    async def _await_address(self, api: Api, machine: Machine, keep: Keep, droplet: int) -> None:
        options = machine.options
        seen = False
        for _ in range(_ADDRESS_POLLS):
            answer = await api.find(f"{_DROPLETS}/{droplet}", f"looking at the droplet {droplet}")
            seen = seen or answer is not None
            if answer is None and seen:
                raise DriverError(Reason.FAILED, f"the droplet {droplet} was removed while it was made")
            if answer is not None and (addresses := _addresses(answer["droplet"], options)):
                await keep({**addresses, "SSHUser": options.text("ssh-user"), "SSHPort": options.number("ssh-port")})
                return
            await self.around.clock.sleep(_PAUSE)
        seconds = _ADDRESS_POLLS * _PAUSE
        raise DriverError(Reason.TIMED_OUT, f"the droplet {droplet} has no address {seconds:.0f} s after it was made")

    async def _await_gone(self, api: Api, droplet: int) -> None:
        for _ in range(_GONE_POLLS):
            if await api.find(f"{_DROPLETS}/{droplet}", f"looking at the droplet {droplet}") is None:
                return
            await self.around.clock.sleep(_PAUSE)
        seconds = _GONE_POLLS * _PAUSE
        raise DriverError(
            Reason.TIMED_OUT, f"the droplet {droplet} is still there {seconds:.0f} s after its removal was asked for"
        )


def _never_answered() -> DriverError:
    return DriverError(
        Reason.UNAVAILABLE,
        f"the droplet was asked for {_REQUESTS} times; DigitalOcean never answered, and no droplet came of it",
    )


def _request(machine: Machine, key: int) -> dict[str, Any]:
    options = machine.options
    image = options.text("image")
    found: dict[str, Any] = {
        "name": machine.name,
        "region": options.text("region"),
        "size": options.text("size"),
        "image": int(image) if image.isascii() and image.isdigit() else image,
        "ssh_keys": [key],
        "backups": options.on("backups"),
        "ipv6": options.on("ipv6"),
        "private_networking": options.on("private-networking"),
        "monitoring": options.on("monitoring"),
        "tags": [*ssh_keys.parsed(options.text("tags")), *ssh_keys.ours(machine)],
    }
    if content := _userdata(options):
        found["user_data"] = content
    return found


def _userdata(options: Options) -> str:
    named = options.text("userdata")
    if not named:
        return ""
    try:
        content = Path(named).read_bytes()
        text = content.decode()
    except OSError as error:
        raise DriverError(Reason.INVALID, f"the user data in {named} can't be read: {error.strerror}", field="userdata") from None
    except UnicodeDecodeError:
        raise DriverError(Reason.INVALID, "the user data is no text", field="userdata") from None
    if len(content) > _USERDATA_LIMIT:
        message = f"the user data has {len(content)} bytes; DigitalOcean takes {_USERDATA_LIMIT}"
        raise DriverError(Reason.INVALID, message, field="userdata")
    return text


async def _tagged(api: Api, machine: Machine) -> list[Droplet]:
    """The oldest first."""
    if not machine.token:
        return []
    path = f"{_DROPLETS}?tag_name={ssh_keys.token_tag(machine.token)}"
    try:
        found = [one async for one in api.every(path, "droplets", "looking for our droplet")]
    except DigitalOceanRefused as error:
        if error.status != 404:
            raise
        # No such tag.
        return []
    return sorted(found, key=lambda one: int(one["id"]))


def _addresses(droplet: Droplet, options: Options) -> dict[str, str]:
    """Empty until all are there that were asked for."""
    networks = droplet.get("networks") or {}
    four = {str(one.get("type")): str(one.get("ip_address") or "") for one in networks.get("v4") or ()}
    six = next((str(one.get("ip_address")) for one in networks.get("v6") or () if one.get("type") == "public"), "")
    if not four.get("public") or (options.on("private-networking") and not four.get("private")):
        return {}
    private = four.get("private", "") if options.on("private-networking") else ""
    return {"IPAddress": four["public"], "PrivateIPAddress": private, "IPv6Address": six}


def _found(droplet: Droplet) -> Found:
    addresses = (droplet.get("networks") or {}).get("v4") or ()
    return Found(
        str(droplet["id"]),
        str(droplet.get("name", "")),
        ssh_keys.token_in(str(tag) for tag in droplet.get("tags") or ()),
        "droplet",
        next((str(one.get("ip_address")) for one in addresses if one.get("type") == "public"), ""),
        str(droplet.get("created_at") or ""),
        _STATES.get(str(droplet.get("status")), State.ERROR),
    )


def _some(names: Mapping[str, Any] | list[str]) -> str:
    known = sorted(names)
    return ", ".join(known[:20]) + (" and others" if len(known) > 20 else "")
