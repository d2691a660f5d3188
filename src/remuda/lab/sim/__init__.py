"""Stand-ins behind the same ports as the real ones: infrastructure, bootstrap and control plane in memory, by the contract.

Nothing here makes a machine. Each simulated workload cluster is a real API server in memory (:mod:`.workload_clusters`); its
nodes are objects that nobody stands behind. On a virtual clock the same seed gives the same run, event for event
(:mod:`.capi_world`). Tests, benches, and later preview and rehearsal use it; objects that it makes carry `sim.remuda.dev` in
their group or provider id.
"""
