"""The parts of `remuda demo`: `demo.yaml` with its variants (:mod:`.declared`), etcd (:mod:`.server`), a server (:mod:`.server`),
the tour (:mod:`.tour`), its output (:mod:`.stage`), and the check that nothing is left (:mod:`.leftovers`).

Not here: the command (`..commands.demo`), the hosts (`hosts`), the distribution (`lab/distro`). Read :mod:`.tour` first.
"""
