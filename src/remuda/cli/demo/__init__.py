"""The parts of `remuda demo`: the tour (:mod:`.tour`), its cluster (:mod:`.cluster`, from `demo.yaml`), its server and etcd
(:mod:`.server`), its output (:mod:`.stage`), and the check that nothing is left (:mod:`.leftovers`).

Not here: the command (`..commands.demo`), the hosts (`hosts`), the distribution (`lab/distro`). Read :mod:`.tour` first.
"""
