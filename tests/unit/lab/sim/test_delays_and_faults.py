"""Chance in the simulation depends on the seed and the object alone."""

from __future__ import annotations

from typing import Any

from remuda.lab.sim.delays_and_faults import AT_ONCE, Weather, chance

Obj = dict[str, Any]


def machine(name: str, namespace: str = "herd") -> Obj:
    return {"kind": "SimMachine", "metadata": {"name": name, "namespace": namespace}}


def test_good_weather_takes_no_time_and_lets_nothing_fail() -> None:
    weather = Weather()
    assert weather.within(AT_ONCE, 1, machine("a"), "machine") == 0
    assert not weather.happens(weather.failing, 1, machine("a"), "failing")


def test_a_step_takes_as_long_each_time_one_asks() -> None:
    weather = Weather(machine=(10, 20))
    first = weather.within(weather.machine, 7, machine("a"), "machine")
    assert 10 <= first <= 20
    assert weather.within(weather.machine, 7, machine("a"), "machine") == first


def test_objects_seeds_namespaces_and_steps_have_dice_of_their_own() -> None:
    thrown = {
        chance(*each).uniform(0, 1)
        for each in (
            (7, machine("a"), "machine"),
            (8, machine("a"), "machine"),
            (7, machine("b"), "machine"),
            (7, machine("a", "other"), "machine"),
            (7, machine("a"), "join"),
        )
    }
    assert len(thrown) == 5


def test_what_happens_to_some_happens_to_about_as_many() -> None:
    weather = Weather(lost=0.3)
    lost = sum(weather.happens(weather.lost, 1, machine(f"m{number}"), "lost") for number in range(1000))
    assert 250 < lost < 350
