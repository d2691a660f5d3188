"""Simulations behind the same ports as the real parts.

`distro`: the `+remuda1` distribution (real etcd, simulated nodes). `sim`: providers, workload clusters and hosts in memory, on a
virtual clock. Nothing here is used by a server on real machines; `app` gives a simulation its controllers as an argument.
Read `distro.server` or `sim.capi_world` first.
"""
