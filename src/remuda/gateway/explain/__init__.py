"""The reason why a cluster does not continue, and what to do: `remuda explain`, and the page's attention.

:mod:`.cluster_reader` reads a cluster into a :class:`~.states.ClusterView`. The next ones are pure: :mod:`.states` gives each
object its state in one word, :mod:`.operations` those of requests, :mod:`.waits` collects waits, :mod:`.wait_chain` follows them
to their cause, :mod:`.wait_advice` and :mod:`.spec_advice` say what to do, :mod:`.attention` groups causes of many clusters.
:mod:`.explanations` serves them. Not here: waits themselves, which controllers have (:mod:`..server.remuda_api`), and how they
are printed (`cli/views`). Read :mod:`.states` first.
"""
