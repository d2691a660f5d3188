"""The flags: names, kinds, defaults and variables of rancher-machine (protocols.md §5.8)."""

from __future__ import annotations

from ...options import Flag, FlagKind


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
