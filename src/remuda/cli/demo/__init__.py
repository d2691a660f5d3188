"""What `remuda demo` is made of: `demo.yaml` and what becomes of it (:mod:`.declared`), the etcd (:mod:`.etcd`), a server
(:mod:`.server`), the tour (:mod:`.tour`), how it is told (:mod:`.stage`), the proof that nothing is left (:mod:`.leftovers`).
"""
