"""What a simulated host reads in its plan, and writes as its result: configuration, version, arguments, failures."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

from remuda.agent.plans.apply import Result
from remuda.provisioning.plans.machine_plan_secret import packed
from remuda.provisioning.plans.plan import Instruction, Plan

Obj = dict[str, Any]

_CONFIG = "/config.yaml.d/50-rancher.yaml"


def restart_stamp(install: Instruction) -> str:
    return next((each for each in install.env if each.startswith("RESTART_STAMP=")), "")


def config_of(plan: Plan) -> Obj:
    found: Obj = next((json.loads(file.data) for file in plan.files if file.path.endswith(_CONFIG)), {})
    return found


def version_of(image: str) -> str:
    """The version in the tag of an installer's image."""
    return image.rpartition(":")[2].replace("-", "+")


def settings_of(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The arguments of a command as the settings that they stand for."""
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if equals:
            yield name, value


def base64_text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def failed(name: str, why: str, before: Result) -> Result:
    return Result(True, False, packed({name: base64_text(why)}), before.periodic, why)
