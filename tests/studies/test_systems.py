"""The systems: fifteen scenarios that run in both engines, each with a factor that can be taken away."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep.scenarios import override, shipped
from lockstep.strategies.owners import OneModelEach
from lockstep.studies.accuracy_suite.tables import between_markers
from lockstep.studies.published import table as published
from lockstep.studies.systems import SYSTEMS, Also, System, page
from tests.support import ROOT
from tests.support.nightly import drawn

NAMES = ["MXNet", "TensorFlow", "CNTK", "CaffeOnSpark", "BigDL", "Minerva", "Mariana", "Petuum", "SINGA",
         "DistBelief", "Project Adam", "DMTK", "TensorFlow on Cloud ML", "Distributed training on Azure",
         "The peer-to-peer framework (Ako)"]  # fmt: skip
PAGE = (ROOT / "docs" / "systems.md").read_text(encoding="utf-8")
EACH: Any = pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
OWNERS = {"CNTK", "Distributed training on Azure", "Minerva"}  # its nodes own parts: a server on each
FACTORS = [each for s in SYSTEMS for each in (s, *s.also)]


def test_all_of_them_and_every_scenario_is_one_s() -> None:
    assert sorted(system.name for system in SYSTEMS) == sorted(NAMES)
    used = {name for s in SYSTEMS for name in s.scenarios}
    used |= {each.scenario for s in SYSTEMS for each in s.published}
    on_pages = {"systems/servers-or-all-reduce", "systems/published/tensorflow-inception-v3-variables"}
    assert used | on_pages == {name for name in shipped() if name.startswith("systems/")}


def test_they_are_in_the_order_of_the_taxonomy() -> None:
    """By consistency, then with servers before without, then data before models that are cut."""

    def place(system: System) -> tuple[int, bool, bool]:
        said = system.consistency
        after = "bounded" in said, said.startswith("synchronous inside"), said.startswith("asynchronous")
        has_servers = "server" in system.architecture and "no servers" not in system.architecture
        return (
            sum((n + 1) * such for n, such in enumerate(after)),
            not has_servers,
            "models" in system.parallelism,
        )

    places = [place(system) for system in SYSTEMS]
    assert places == sorted(places)


@pytest.mark.parametrize("system", drawn(FACTORS, one_in=3), ids=lambda each: each.scenario)
def test_without_its_factor_other_things_happen(system: System | Also) -> None:
    """And it learns with it."""
    config = lockstep.load(system.scenario)
    plain = config
    for key, value in system.without.items():
        plain = override(plain, key, value)
    found, other = lockstep.simulate(config), lockstep.simulate(plain)
    assert not found.records.equals(other.records)
    assert found.metrics["loss"] < (0.66 if hasattr(config.workload, "problem") else 2.2)  # of ln 2, ln 10


@EACH
def test_what_it_says_of_itself_is_so(system: System) -> None:
    """Of servers, where parameters are, who waits, and what is cut."""
    plan = lockstep.simulate(override(lockstep.load(system.scenario), "stop", {"steps": 1})).plan
    servers, said = plan.scenario.cluster.servers, system.placement
    assert plan.has_servers == ("server" in said or "shards" in said or system.name in OWNERS)
    if plan.has_servers:
        assert ("whole variables" in said) == (servers.placement == "by-variable")
        assert ("one server" in said) == (servers.count * servers.copies == 1)
        assert servers.colocated == ("workers' hosts" in system.architecture or system.name in OWNERS)
    assert (plan.scenario.split.devices > 1) == ("models that are cut" in system.parallelism)
    assert ("asynchronous" in system.consistency.partition(";")[0]) == (
        not plan.strategy.equal_steps and "bounded" not in system.consistency
    )
    assert (plan.strategy.owners is OneModelEach and not plan.has_servers) == ("a model" in said)


@pytest.mark.real
@pytest.mark.parametrize("name", drawn((each.scenario for each in FACTORS), one_in=5))
def test_it_runs_for_real(name: str) -> None:
    """What is in step ends with the simulator's bits."""
    config = override(lockstep.load(name), "stop", {"steps": 10})
    measured = lockstep.run(config)
    if measured.plan.strategy.equal_steps:
        assert np.array_equal(measured.parameters, lockstep.simulate(config).parameters)
    assert measured.metrics["samples"] == 10 * config.workload.batch_size * config.replicas


@pytest.mark.parametrize("table", ["overview", "sections", "published"])
def test_the_page_is_as_made(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "make"))
    make = import_module("systems")
    made = make.TABLES[table]()
    assert between_markers(PAGE, made, f"{make.NAME} {table}") == PAGE, "out of date: docs/make/systems.py"


def test_a_source_of_the_recipe_and_published_figures_or_why_there_are_none() -> None:
    """And how much of the source was read."""
    tables = set(published.names())
    for system in SYSTEMS:
        assert "read)" in system.source
        assert tables.issuperset(system.tables)
        assert bool(system.unread) != bool(system.published or system.tables)


def test_a_picture_for_each() -> None:
    for system in SYSTEMS:
        assert (ROOT / "docs" / "systems" / f"{system.scenario.rpartition('/')[2]}.png").is_file()
        assert f"](#{page.anchor(system)})" in PAGE


def test_the_map_of_servers_and_all_reduce_has_as_many_rounds_for_either_period() -> None:
    """Nobody waits for the servers' last answer, which is a twelfth of the bytes of six rounds."""
    ways = lockstep.load("systems/servers-or-all-reduce").sweep["zip"]
    periods = [way["averaging_period"] for way in ways["strategy"]]
    assert [steps / period for steps, period in zip(ways["stop.steps"], periods, strict=True)] == [60] * 6
