"""Makes tests/unit/kube/condition_goldens.json: random conditions, and what Cluster API's own code makes of them.

Run it by hand with a Go toolchain when the pinned Cluster API changes: `python -m tests.real.goldens.conditions.make`.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

Obj = dict[str, Any]
HERE = Path(__file__).parent
TARGET = HERE.parents[2] / "unit" / "kube" / "condition_goldens.json"
KINDS = ["A", "B", "C", "Ready", "D"]
STATUSES = ["True", "False", "Unknown"]
MESSAGES = ["", "a", "b", "* x", "* x\n* y", "l\n* m", "c", "d", "e"]


class Maker:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def _time(self) -> str:
        return f"2026-01-01T00:00:0{self.dice.randrange(5)}Z"

    def condition(self, kind: str) -> Obj:
        status, message = self.dice.choice(STATUSES), self.dice.choice(MESSAGES)
        return {"type": kind, "status": status, "reason": f"R{kind}", "message": message, "lastTransitionTime": self._time()}

    def legacy(self, kind: str) -> Obj:
        made = {"type": kind, "status": self.dice.choice(STATUSES), "lastTransitionTime": self._time()}
        if made["status"] != "True":
            made |= {"reason": f"R{kind}", "message": f"m{kind}"}
        if made["status"] == "False":
            made["severity"] = self.dice.choice(["Error", "Warning", "Info"])
        return made

    def some(self, items: list[str], least: int = 0) -> list[str]:
        return self.dice.sample(items, self.dice.randrange(least, len(items)))

    def machine(self, number: int, op: str) -> Obj:
        labels = {"cluster.x-k8s.io/control-plane": ""} if self.dice.random() < 0.2 else {}
        kinds = [kind for kind in KINDS if kind != "Ready"] if op == "legacysummary" else KINDS
        status: Obj = {"conditions": [self.condition(kind) for kind in self.some(KINDS)]}
        if op.startswith("legacy"):
            status = {"deprecated": {"v1beta1": {"conditions": [self.legacy(kind) for kind in self.some(kinds)]}}}
        return {"kind": "Machine", "metadata": {"name": f"m{number}", "labels": labels}, "status": status}

    def case(self, op: str) -> Obj:
        kinds = self.some(["A", "B", "C", "D"], 1)
        negative = [kind for kind in kinds if self.dice.random() < 0.3]
        made: Obj = {"Op": op, "Kinds": kinds, "Negative": negative, "Steps": self.dice.random() < 0.5}
        if op == "merge":
            base = [self.condition(kind) for kind in KINDS]
            for name in ("Before", "After", "Latest"):
                kept = [each for each in base if self.dice.random() < 0.85]
                made[name] = [each if self.dice.random() < 0.7 else self.condition(each["type"]) for each in kept]
            made["Owned"] = [kind for kind in KINDS if self.dice.random() < 0.5]
            return made
        numbers = self.dice.sample(range(30), self.dice.randrange(1, 10) if op.endswith("aggregate") else 1)
        made["Machines"] = [self.machine(number, op) for number in numbers]
        made["Optional"] = [kind for kind in kinds if self.dice.random() < 0.3]
        if op == "aggregate":
            made |= {"Kinds": kinds[:1], "Negative": kinds[:1] if negative else []}
        return made


def main() -> None:
    maker = Maker(1)
    cases = [maker.case(op) for op in ("summary", "aggregate", "legacysummary", "legacyaggregate", "merge") for _ in range(40)]
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(HERE / "main.go", directory)
        for name in ("go.mod", "go.sum"):
            shutil.copy(HERE.parents[1] / "capi" / name, directory)
        subprocess.run(["go", "build", "-mod=mod", "-o", "golden", "."], cwd=directory, check=True)
        text = "".join(json.dumps(case) + "\n" for case in cases)
        told = subprocess.run([f"{directory}/golden"], input=text, capture_output=True, text=True, check=True).stdout
    answers = [json.loads(line) for line in told.splitlines()]
    pairs = [{"case": case, "answer": answer} for case, answer in zip(cases, answers, strict=True)]
    TARGET.write_text("[\n" + ",\n".join(json.dumps(pair, sort_keys=True) for pair in pairs) + "\n]\n")


if __name__ == "__main__":
    main()
