"""`lockstep serve`: what its page shows, without a browser; tests/system/test_serve_page.py clicks."""

from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep import Scenario, scenarios
from lockstep.analysis.plots.waterfall import waterfall
from lockstep.commands import serve
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.loading import Written
from lockstep.serving import runs
from lockstep.serving.controls import SLOW, SLOWDOWN, UNLIMITED, Setting, title
from lockstep.serving.prediction import Picture, Prediction, compare, learn, predict
from lockstep.simulator.pilot import instant
from lockstep.strategies import STRATEGIES
from lockstep.strategies.bounds import problem
from tests.support.command_line import Lockstep

SMALL = ["cluster.workers=2", "cluster.stragglers=[]", "stop.epochs=1", "workload.model=mlp"]


def test_a_setting_is_its_scenario_until_it_is_changed() -> None:
    for name in ("quickstart", "sizes-only", "racks", "resnet-50-ten-gigabit", "strategies/fedavg"):
        base = lockstep.load(name)
        setting = Setting(base)
        assert setting.scenario == base
        for control in setting.controls:  # what a control shows is what it has been given
            setting.values[control.key] = setting.text(control.key)
            steps = control.with_step(setting.text(control.key))
            assert steps[control.nearest(setting.text(control.key))] == setting.text(control.key)
        assert flat(setting.scenario) == pytest.approx(flat(base), rel=1e-5)


def predicted(scenario: Scenario) -> list[Any]:
    """What is predicted, without how far it is meanwhile."""
    return [each for each in predict(scenario) if not isinstance(each, float)]


def flat(scenario: Scenario) -> dict[str, float]:
    from lockstep.analysis.table import keys

    return {key: value for key, value in keys(scenario).items() if isinstance(value, int | float)}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("cluster.workers", "8"),
        ("cluster.servers.count", "2"),
        ("cluster.network.bandwidth", "2.5 Gbit/s"),
        ("cluster.network.latency", "20 µs"),
        ("cluster.compute.time.mean", "5 ms"),
        ("workload.batch_size", "64"),
    ],
)
def test_a_control_sets_what_set_does(key: str, text: str) -> None:
    setting = Setting(lockstep.load("quickstart", ["cluster.stragglers=[]"]))
    setting.set(key, text)
    wanted = lockstep.load("quickstart", ["cluster.stragglers=[]", "sweep={}", f"{key}={text}"])
    assert setting.scenario == wanted
    assert scenarios.load(Written(scenarios.dump(setting.scenario), Path())) == wanted  # as YAML, and back
    setting.set(key, Setting(setting.base).text(key))
    assert setting.scenario == setting.base


def test_sliders_step_upwards_through_the_value_of_the_file() -> None:
    setting = Setting(lockstep.load("quickstart", ["cluster.network.bandwidth=333 Mbit/s"]))
    control = next(each for each in setting.controls if each.key == "cluster.network.bandwidth")
    steps = control.with_step("333 Mbit/s")
    assert steps[steps.index("333 Mbit/s") - 1 :][:3] == ("200 Mbit/s", "333 Mbit/s", "500 Mbit/s")
    assert steps[-1] == UNLIMITED
    setting.set(control.key, UNLIMITED)
    assert setting.scenario.cluster.network.bandwidth is None


def test_the_last_workers_are_the_slow_ones() -> None:
    setting = Setting(lockstep.load("quickstart"))
    assert (setting.text(SLOW), setting.text(SLOWDOWN)) == ("1", "3")
    setting.set("cluster.workers", "2")  # the file's straggler is worker 3
    assert [each.scope for each in setting.scenario.cluster.stragglers] == [("worker", 1)]
    setting.set(SLOW, "0")
    assert setting.scenario.cluster.stragglers == ()
    setting.set(SLOW, "3")
    with pytest.raises(ScenarioError, match="a whole number from 0 to the 2 workers, not 3"):
        _ = setting.scenario
    setting.set(SLOW, "some")
    with pytest.raises(ScenarioError, match="'some' is not a number"):
        _ = setting.scenario
    spells = "{slowdown: 3, spells: {every: 1 s, last: 1 s}}"
    assert not Setting(lockstep.load("quickstart", [f"cluster.stragglers=[{spells}]"])).text(SLOW)


@pytest.mark.parametrize("name", STRATEGIES)
def test_each_strategy_has_its_knobs(name: str) -> None:
    setting = Setting(lockstep.load(f"strategies/{name}"))
    knobs = {knob.name: knob for knob in setting.knobs}
    assert set(setting.program.own_parameters) >= {key for key, knob in knobs.items() if knob.special}
    for knob in knobs.values():
        assert title(knob)
        assert knob.hint
        for choice in knob.choices or ():
            assert problem(choice, knob.annotation) is None
    before = setting.scenario
    for knob in knobs.values():
        setting.turn(knob.name, setting.base.strategy.parameters.get(knob.name))
    assert setting.scenario == before


def test_a_strategy_takes_its_own_parameters_only() -> None:
    setting = Setting(lockstep.load("quickstart"))
    assert "communication_window" in [knob.name for knob in setting.knobs]
    setting.strategy = "all-reduce"
    assert setting.scenario.strategy.parameters == {"learning_rate": 0.05}
    assert "cluster.servers.count" not in [control.key for control in setting.controls]
    setting.strategy = "downpour"
    assert setting.scenario == setting.base
    setting.turn("communication_window", 0)
    (message,) = list_of_errors(setting.scenario)
    assert message == "strategy.communication_window: 0 is not a whole number ≥ 1"


def list_of_errors(scenario: Scenario) -> list[str]:
    try:
        lockstep.check(scenario)
    except ScenarioError as error:
        return [str(error)]
    return []


def test_a_pasted_text(tmp_path: Path) -> None:
    whole = scenarios.dump(lockstep.load("quickstart"))
    for text, said in (
        (whole.replace("workers: 4", "workers: many"), r"^the text:\d+: cluster.workers: must be a whole"),
        ("name: x\nname: y", "^the text:2: name: duplicate key"),
        ("#" * (1 << 20) + "##", "over 1 MiB"),
        ("", "is empty"),
    ):
        with pytest.raises(ScenarioError, match=said):
            scenarios.load(Written(text, tmp_path))


def test_code_of_a_pasted_text_is_not_run_from_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')\n")
    text = """
        {name: x, cluster: {workers: 1, compute: measured}, workload: {task: "evil:f"},
         strategy: downpour, stop: {steps: 1}}
    """
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(ScenarioError, match="there is no module evil in the current folder"):
        scenarios.load(Written(text, tmp_path), alone=True, beside=False)


def test_a_short_run_is_predicted_whole() -> None:
    scenario = lockstep.load("quickstart", SMALL)
    numbers, gantt = predicted(scenario)
    assert isinstance(numbers, Prediction)
    assert isinstance(gantt, Picture)
    assert numbers.until is None
    assert numbers.row["throughput"] == lockstep.simulate(scenario).metrics["throughput"]
    assert gantt.source.startswith("data:image/svg+xml")


def test_of_a_long_run_the_beginning_is_predicted() -> None:
    scenario = lockstep.load("sizes-only", ["stop.steps=400", "cluster.workers=8"])
    until = instant(scenario, 8000, 2_000_000)
    assert until is not None
    assert until == instant(scenario, 8000, 2_000_000)  # whatever the machine does meanwhile
    numbers = predicted(scenario)[0]
    assert isinstance(numbers, Prediction)
    assert numbers.until == until
    assert "duration" not in numbers.metrics
    whole = lockstep.simulate(scenario).metrics["throughput"]
    assert numbers.row["throughput"] == pytest.approx(whole, rel=0.05)  # the first pushes are under way
    assert instant(lockstep.load("sizes-only", ["stop.steps=2"]), 8000, 2_000_000) is None


def test_what_is_learned_comes_with_how_far_it_is() -> None:
    *fractions, numbers, curve = learn(lockstep.load("quickstart", SMALL))
    assert fractions == sorted(fractions)
    assert all(0 <= fraction <= 1 for fraction in fractions if isinstance(fraction, float))
    assert isinstance(numbers, Prediction)
    assert {"held-out loss", "accuracy"} <= set(numbers.learned)
    assert isinstance(curve, Picture)


def test_two_settings() -> None:
    rows = []
    for bandwidth in ("1 Gbit/s", "10 Gbit/s"):
        chosen = ["cluster.workers=4", f"cluster.network.bandwidth={bandwidth}"]
        numbers = predicted(lockstep.load("sizes-only", chosen))[0]
        assert isinstance(numbers, Prediction)
        rows.append(numbers.row)
    pair, picture = compare(*rows)
    assert set(pair.keys) == {"cluster.network.bandwidth"}  # not when the beginning ended
    assert picture.name == "step"
    assert waterfall(pair)
    (same,) = compare(rows[0], rows[0])
    assert same.same


def test_a_folder_of_runs(tmp_path: Path) -> None:
    scenario = lockstep.load("sizes-only", ["cluster.workers=2", "stop.steps=3"])
    lockstep.simulate(scenario).save(tmp_path / "one")
    swept = scenarios.override(scenario, "sweep", {"cluster.workers": [2, 4]})
    lockstep.sweep(swept, out=tmp_path / "swept", jobs=1, records_of=[1])
    with pytest.raises(ScenarioError, match="no such file or folder"):
        runs.read(tmp_path / "none")
    shelf = runs.read(tmp_path)
    assert len(shelf.table) == 3
    headings = [column.heading for column in runs.columns(shelf.table)]
    assert headings[:2] == ["folder", "predicted or measured"]
    assert "throughput (samples/s)" in headings
    found = runs.rows(shelf.table)
    assert [row["folder"] for row in found] == ["one", "swept", "swept"]
    assert {row["engine"] for row in found} == {"predicted"}
    assert [row["cluster.workers"] for row in found] == [2, 2, 4]
    kept = [folder is not None for folder in shelf.folders]
    assert kept == [True, False, True]
    for place in range(3):
        metrics, *pictures = runs.describe(shelf, place)
        assert isinstance(metrics, dict)
        assert metrics["throughput"].endswith("samples/s")
        names = [each.name for each in pictures if isinstance(each, Picture)]
        assert ("gantt" in names) == kept[place]


def test_without_the_framework(command: Lockstep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "find_spec", lambda _: None)
    ended = command("serve")
    assert ended.status == 2
    assert ended.err == "error: NiceGUI is not installed; pip install 'lockstep[serve]'\n"


def test_bad_input(command: Lockstep, tmp_path: Path) -> None:
    for arguments, said in (
        (("nowhere",), "no such file"),
        ((tmp_path,), "has no runs"),
        ((tmp_path, "--set", "cluster.workers=2"), "a folder has results"),
        (("quickstart", "--port", "70000"), "--port"),
    ):
        ended = command("serve", *arguments)
        assert (ended.status, ended.err.count("\n")) == (2, 1), ended
        assert said in ended.err
