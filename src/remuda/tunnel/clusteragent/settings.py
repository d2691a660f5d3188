"""The agent's server and its credentials: read repeatedly, since mounted files change.

In a pod they come from the Secret that the import manifest mounts, and from the manifest's environment variables; in a plain
process from the command line. Equal settings need no new connection (:mod:`.agent` compares them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

CREDENTIALS = Path("/cattle-credentials")

_TOKEN = re.compile(r"[!-~]{1,1024}")
_CHECKSUM = re.compile(r"[0-9a-f]{64}")


class SettingsError(Exception):
    """Settings that can't be used; the message names the setting and the reason, and never contains a token."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`strict`: only the CA with that checksum is trusted, not the system's trusted CAs."""

    url: str
    token: str = field(repr=False)
    ca_checksum: str = ""
    strict: bool = False


class Source(Protocol):
    def read(self) -> Settings:
        """The present settings. Raises SettingsError."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """The files `url`, `token` and perhaps `ca-checksum` of a mounted Secret; the rest is from the environment."""

    directory: Path
    environ: Mapping[str, str]

    def read(self) -> Settings:
        url = _content(self.directory / "url") or self.environ.get("CATTLE_SERVER", "")
        checksum = _content(self.directory / "ca-checksum") or self.environ.get("CATTLE_CA_CHECKSUM", "")
        token = _content(self.directory / "token")
        return checked(url, token, checksum, strict=self.environ.get("STRICT_VERIFY", "").lower() == "true")


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Settings from the command line; a token in a file may change."""

    url: str
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    ca_checksum: str = ""
    strict: bool = False

    def read(self) -> Settings:
        token = self.token if self.token_file is None else _content(self.token_file)
        return checked(self.url, token, self.ca_checksum, strict=self.strict)


def checked(url: str, token: str, ca_checksum: str, *, strict: bool) -> Settings:
    """Settings that can be used. Raises SettingsError."""
    parts = urlsplit(url.strip())
    try:
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or parts.username is not None:
        raise SettingsError(f"{url!r} is not the URL of a server")
    # The first request contains the token, which must never cross the network in the clear.
    if parts.scheme != "https":
        raise SettingsError(f"{url!r} does not begin with https://")
    if not token:
        raise SettingsError("there is no registration token")
    if not _TOKEN.fullmatch(token):
        raise SettingsError("the registration token has invalid characters")
    checksum = ca_checksum.strip().lower()
    if checksum and not _CHECKSUM.fullmatch(checksum):
        raise SettingsError(f"the checksum {ca_checksum!r} of the CA is not a SHA-256 in hexadecimal")
    if strict and not checksum:
        raise SettingsError("strict verification needs the checksum of the server's CA, and there is none")
    return Settings(url.strip().rstrip("/"), token, checksum, strict)


def _content(path: Path) -> str:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} can't be read: {getattr(error, 'strerror', None) or 'it is not text'}") from None
