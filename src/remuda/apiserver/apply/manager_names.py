"""The field manager of a request, its default name, and the validation of patch options."""

from __future__ import annotations

from remuda.kube.errors import FieldError, forbidden_field, invalid_value, required, too_long

MAX_MANAGER_BYTES = 128


def manager_of(field_manager: str, user_agent: str) -> str:
    """The manager that a request names, else the beginning of its User-Agent."""
    return field_manager or manager_from_user_agent(user_agent)


def manager_from_user_agent(user_agent: str) -> str:
    """The printable characters before the first slash, at most 128 bytes of them."""
    found = bytearray()
    for char in user_agent.split("/", 1)[0]:
        if not _printable(char):
            continue
        encoded = char.encode("utf-8", "replace")
        if len(found) + len(encoded) > MAX_MANAGER_BYTES:
            break
        found += encoded
    return found.decode()


def _printable(char: str) -> bool:
    return char.isprintable()


def patch_option_errors(field_manager: str, force: bool | None, apply: bool) -> list[FieldError]:
    """Errors in a patch's options; they make a `PatchOptions.meta.k8s.io "" is invalid` Status."""
    found: list[FieldError] = []
    if apply and not field_manager:
        found.append(required("fieldManager", "is required for apply patch"))
    if not apply and force is not None:
        found.append(forbidden_field("force", "may not be specified for non-apply patch"))
    return found + field_manager_errors(field_manager)


def field_manager_errors(field_manager: str, path: str = "fieldManager") -> list[FieldError]:
    found: list[FieldError] = []
    if len(field_manager.encode("utf-8", "replace")) > MAX_MANAGER_BYTES:
        found.append(too_long(path, MAX_MANAGER_BYTES))
    position = 0
    for char in field_manager:
        if not _printable(char):
            found.append(invalid_value(path, field_manager, f"invalid character U+{ord(char):04X} (at position {position})"))
        position += len(char.encode("utf-8", "replace"))
    return found
