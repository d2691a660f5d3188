"""Simulations behind the same ports as the real parts.

`distro`: the `+remuda1` distribution (real etcd, simulated nodes). `sim`: providers, workload clusters and hosts in memory, on a
virtual clock. `app` gives a simulation its controllers as an argument. Not here: anything that a server on real machines
uses.
Read `distro.server` or `sim.capi_world` first.
"""
