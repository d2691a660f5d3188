"""What is wrong with a template of names, in the words of the Go library that upstream uses."""

from __future__ import annotations

from remuda.kube.errors import go_quote

NAME = "template name generator"


class NameTemplateError(ValueError):
    """The template can't be read or filled in."""


def unreadable(template: str, line: int, why: str) -> NameTemplateError:
    return NameTemplateError(f"parsing template {go_quote(template)}: template: {NAME}:{line}: {why}")


def unsupported(template: str, what: str) -> NameTemplateError:
    return NameTemplateError(f"parsing template {go_quote(template)}: {what} is not supported in names of machines")


def unfit(template: str, position: int, node: str, why: str) -> NameTemplateError:
    before = template[:position]
    line, start = before.count("\n") + 1, before.rfind("\n") + 1
    column = len(before[start:].encode())
    return NameTemplateError(
        f"rendering template: template: {NAME}:{line}:{column}: executing {go_quote(NAME)} at <{node}>: {why}"
    )
