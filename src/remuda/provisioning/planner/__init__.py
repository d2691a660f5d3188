"""The planner: decides the next plan of each machine of a cluster, from a :mod:`.snapshot` to a :mod:`.decision`.

Pure but for `controller` and `inputs`. `decide` is the whole cluster, `tiers` one tier, `render` the plans.
`snapshot_reader` translates from objects, `decision` to objects.
Not here: the plan document (`provisioning.plans`).
Read :mod:`.decide` first.
"""
