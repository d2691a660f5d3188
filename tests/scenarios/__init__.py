"""What Cluster API's core must do, told as scenarios on the simulation.

A scenario is a function of a :class:`~remuda.lab.sim.capi_world.World` and needs nothing but its words: it plays on the
embedded API in virtual time as on a real kube-apiserver. :mod:`.playbill` lists them all; the tests play each of them plainly,
with a core that dies in the middle, and under bad weather.
"""
