"""Simulated infrastructure, bootstrap and control plane providers and hosts, in memory, behind the ports of the real ones.

Each simulated workload cluster is a real API server in memory (:mod:`.workload_clusters`); its nodes are plain objects. On a
virtual clock the same seed gives the same run, event for event (:mod:`.capi_world`, :mod:`.provisioning_world`). Tests, benches
and rehearsals (`app/rehearsal`) use it; objects that it makes carry `sim.remuda.dev` in their group or provider id.
Not here: real processes (`..distro`, `hosts`), our controllers. Read :mod:`.capi_world` first.
"""
