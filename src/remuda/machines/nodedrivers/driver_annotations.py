"""A NodeDriver's annotations about its fields: which make up its credential, which hold secrets or whole files
(docs/reference/machines.md#annotations-of-a-driver)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.kube.objects import annotations_of

Obj = dict[str, Any]

PUBLIC: Final = "publicCredentialFields"
PRIVATE: Final = "privateCredentialFields"
PASSWORDS: Final = "passwordFields"
OPTIONAL: Final = "optionalCredentialFields"
DEFAULTS: Final = "defaults"
ALIASES: Final = "nodedriver.cattle.io/file-to-field-aliases"
HINTS: Final = "io.cattle.nodedriver/ui-field-hints"


@dataclass(frozen=True, slots=True)
class Shape:
    """Names of fields. `aliases` are fields that hold a file's content, with the driver's own field that takes a path to it."""

    public: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    passwords: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, driver: Obj) -> Shape:
        said = annotations_of(driver)
        public, private, passwords, optional = (_listed(said.get(name) or "") for name in (PUBLIC, PRIVATE, PASSWORDS, OPTIONAL))
        return cls(public, private, passwords, optional, _mapped(said.get(DEFAULTS) or ""), _mapped(said.get(ALIASES) or ""))

    def annotations(self) -> dict[str, str]:
        lists = {PUBLIC: self.public, PRIVATE: self.private, PASSWORDS: self.passwords, OPTIONAL: self.optional}
        maps = {DEFAULTS: self.defaults, ALIASES: self.aliases}
        made = {name: ",".join(values) for name, values in lists.items()}
        made |= {name: _joined(values.items()) for name, values in maps.items()}
        return {name: value for name, value in made.items() if value}

    def renamed(self, own: str) -> str:
        """The name of a driver's own field in a machine config. Aliases may be spelled like a flag (`cloud-config`)."""
        return next((alias for alias, theirs in self.aliases.items() if _plain(theirs) == _plain(own)), own)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _mapped(text: str) -> dict[str, str]:
    pairs = (part.partition(":") for part in _listed(text))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def _joined(pairs: Iterable[tuple[str, str]]) -> str:
    return ",".join(f"{name}:{value}" for name, value in pairs)


def _plain(name: str) -> str:
    return name.replace("-", "").lower()
