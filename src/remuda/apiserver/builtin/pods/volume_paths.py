"""Rules for paths inside volumes."""

from __future__ import annotations

from remuda.kube.errors import invalid_value

from ..checks import Errors


def no_backsteps(target: str, path: str) -> Errors:
    return [invalid_value(path, target, "must not contain '..'")] if ".." in target.split("/") else []


def local_descending(target: str, path: str) -> Errors:
    errors = [invalid_value(path, target, "must be a relative path")] if target.startswith("/") else []
    return errors + no_backsteps(target, path)


def local_not_reserved(target: str, path: str) -> Errors:
    errors = local_descending(target, path)
    if target.startswith("..") and not target.startswith("../"):
        errors.append(invalid_value(path, target, "must not start with '..'"))
    return errors
