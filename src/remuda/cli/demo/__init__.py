"""`remuda demo` (:mod:`.command`) and its parts: the tour (:mod:`.tour`), its cluster (:mod:`.cluster`, from `demo.yaml`), its
server and etcd (:mod:`.server`), its output (:mod:`.stage`), and the check that nothing is left (:mod:`.leftovers`).

Not here: the hosts (`hosts`), the distribution (`lab/distro`). Read :mod:`.tour` first.
"""
