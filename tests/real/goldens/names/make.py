"""Makes tests/unit/provisioning/graph/name_goldens.json: names and hashes as Rancher's own library and Go's encoder make them.

Run it by hand with a Go toolchain when the pinned library changes: `python -m tests.real.goldens.names.make`.
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
TARGET = HERE.parents[2] / "unit" / "provisioning" / "graph" / "name_goldens.json"
LIBRARY = "github.com/rancher/wrangler/v3@v3.7.1"
MODULE = "module remuda.dev/tests/real/goldens/names\n\ngo 1.26.0\n"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-."
TEXTS = ["", "a", "<b> & c", "\n\t\r", '"\\', "ü\u2028\u2029", "\b\f\x01\x7f", "#cloud-config\nruncmd: [a && b > c]"]

OWNERS = [("v1", "Secret"), ("provisioning.cattle.io/v1", "Cluster"), ("rke.cattle.io/v1", "RKECluster")]


class Maker:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def word(self, most: int) -> str:
        return "".join(self.dice.choice(LETTERS) for _ in range(self.dice.randrange(1, most)))

    def value(self) -> Any:
        texts = self.dice.sample(TEXTS, self.dice.randrange(1, 4))
        return self.dice.choice([texts[0], texts, True, False, 0, 7, {texts[0]: texts}])

    def case(self, op: str) -> Obj:
        if op == "safe":
            return {"Op": op, "Parts": [self.word(40) for _ in range(self.dice.randrange(1, 4))]}
        if op == "hex":
            return {"Op": op, "Parts": [self.word(80)], "Count": 5}
        if op == "marks":
            owner = self.dice.choice(OWNERS)
            return {"Op": op, "Parts": [self.word(12), *owner, self.dice.choice(["", self.word(12)]), self.word(40)]}
        fields = {self.word(12): self.value() for _ in range(self.dice.randrange(6))}
        # What says nothing is left out before it is hashed.
        said = {name: value for name, value in fields.items() if op == "json" or value != ""}
        return {"Op": op, "Pool": self.word(60), "Value": said}


def main() -> None:
    maker = Maker(1)
    cases = [maker.case(op) for op in ("safe", "hex", "json", "template", "marks") for _ in range(40)]
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(HERE / "main.go", directory)
        (Path(directory) / "go.mod").write_text(MODULE)
        subprocess.run(["go", "get", LIBRARY], cwd=directory, check=True)
        subprocess.run(["go", "mod", "tidy"], cwd=directory, check=True)
        subprocess.run(["go", "build", "-mod=mod", "-o", "golden", "."], cwd=directory, check=True)
        text = "".join(json.dumps(case) + "\n" for case in cases)
        told = subprocess.run([f"{directory}/golden"], input=text, capture_output=True, text=True, check=True).stdout
    answers = [json.loads(line) for line in told.splitlines()]
    pairs = [{"case": case, "answer": answer} for case, answer in zip(cases, answers, strict=True)]
    TARGET.write_text("[\n" + ",\n".join(json.dumps(pair, sort_keys=True) for pair in pairs) + "\n]\n")


if __name__ == "__main__":
    main()
