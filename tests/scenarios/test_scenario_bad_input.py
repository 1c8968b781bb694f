"""Every bad input is one ScenarioError: one line, naming file, line and key, and saying what is valid."""
# ruff: noqa: E501  (a case is a line)

import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from lockstep.scenarios import Scenario, ScenarioError, load
from tests.support.nightly import examples
from tests.support.pace import slowness

GOOD = """\
name: good
cluster:
  workers: 4
  servers: 1
  network: {bandwidth: 100 Mbit/s, latency: 200 us}
  compute: {time: {distribution: lognormal, mean: 30 ms, cv: 0.2}}
  stragglers:
    - {worker: 3, slowdown: 3}
workload: {dataset: digits, batch_size: 32}
strategy: {name: downpour, window: 5}
stop: {epochs: 10}
seed: 7
sweep:
  cluster.workers: [4, 8]
"""
TIME = "{distribution: lognormal, mean: 30 ms, cv: 0.2}"
COMPUTE = "{time: " + TIME + "}"
DATA = "{dataset: digits, batch_size: 32}"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{b}: &{b} [{', '.join(['*' + a] * 9)}]" for a, b in zip("abcdefghijkl", "bcdefghijklm", strict=True)
)

# what is replaced, by what; line, key and what the message says
EDITS = [
    ("bandwidth:", "bandwith:", 5, "cluster.network.bandwith", "unknown key; did you mean 'bandwidth'? (valid: "),
    ("seed:", "sede:", 12, "sede", "did you mean 'seed'?"),
    ("100 Mbit/s", "100", 5, "cluster.network.bandwidth", "no unit; write a bandwidth with its unit, such as '10"),
    ("100 Mbit/s", "5 Hz", 5, "cluster.network.bandwidth", "'5 Hz' is not a bandwidth"),
    ("100 Mbit/s", "-1 Mbit/s", 5, "cluster.network.bandwidth", "must be above 0"),
    ("100 Mbit/s", "0 bit/s", 5, "cluster.network.bandwidth", "must be above 0"),
    ("200 us", "-1 us", 5, "cluster.network.latency", "must be 0 or more"),
    ("200 us", "null", 5, "cluster.network.latency", "null is not a duration"),
    ("latency: 200 us", "goodput: 1.5", 5, "cluster.network.goodput", "must be at most 1, not 1.5"),
    ("latency: 200 us", "goodput: 0", 5, "cluster.network.goodput", "must be at least 0.01, not 0"),
    ("workers: 4\n", "workers: 0\n", 3, "cluster.workers", "must be at least 1, not 0"),
    ("workers: 4\n", "workers: 100_001\n", 3, "cluster.workers", "must be at most 100000"),
    ("workers: 4\n", "workers: true\n", 3, "cluster.workers", "must be a whole number, not true"),
    ("workers: 4\n", "workers: '4'\n", 3, "cluster.workers", "must be a whole number, not '4'"),
    ("workers: 4\n", "workers: 4.0\n", 3, "cluster.workers", "must be a whole number, not 4.0"),
    ("workers: 4\n", "workers: .nan\n", 3, "cluster.workers", "write a finite one"),
    ("workers: 4\n", "workers: 1e999\n", 3, "cluster.workers", "write a finite one"),
    ("workers: 4\n", "workers: " + "9" * 5000 + "\n", 3, "cluster.workers", "below 2**63"),
    ("  workers: 4\n", "", 2, "cluster.workers", "missing; give the number of workers"),
    ("servers: 1", "servers: 0", 4, "cluster.servers", "must be at least 1, not 0"),
    ("servers: 1", "servers: many", 4, "cluster.servers", "must be a whole number, or hosts or workers, not 'many'"),
    ("servers: 1", "servers: [1]", 4, "cluster.servers", "must be a mapping (keys: count, copies, colocated, shares, placement, split_above, hierarchy, places, speed, price, device), not a list"),
    ("servers: 1", "servers: {cuont: 1}", 4, "cluster.servers.cuont", "did you mean 'count'?"),
    ("servers: 1", "servers: {colocated: 1}", 4, "cluster.servers.colocated", "must be true or false, not 1"),
    (f"  compute: {COMPUTE}\n", "", 2, "cluster.compute", "missing; give the time of one gradient"),
    (COMPUTE, "null", 6, "cluster.compute", "or the word 'measured', not null"),
    (COMPUTE, "mesured", 6, "cluster.compute", "or the word 'measured', not 'mesured'"),
    (COMPUTE, "{}", 6, "cluster.compute", "exactly one of time"),
    (TIME, TIME + ", peak: 1 TFLOP/s", 6, "cluster.compute", "exactly one of time"),
    (TIME, "30 ms", 6, "cluster.compute.time", "such as {distribution: constant, value: 30 ms}"),
    (TIME, "{mean: 30 ms}", 6, "cluster.compute.time.distribution", "(valid: constant, empirical,"),
    ("lognormal", "lognorm", 6, "cluster.compute.time.distribution", "did you mean 'lognormal'?"),
    ("lognormal", "[a]", 6, "cluster.compute.time.distribution", "a list is not a distribution"),
    ("cv: 0.2", "cv: 0", 6, "cluster.compute.time.cv", "must be at least 0.000001, not 0"),
    (", cv: 0.2", "", 6, "cluster.compute.time.cv", "missing; give"),
    ("mean: 30 ms, ", "", 6, "cluster.compute.time.mean", "missing; give a duration with its unit, such as"),
    ("mean: 30 ms", "mean: 0 ms", 6, "cluster.compute.time.mean", "must be above 0"),
    (TIME, "{distribution: uniform, low: 2 s, high: 1 s}", 6, "cluster.compute.time.high", "must be at least low"),
    (TIME, "{distribution: pareto, mean: 2 s, shape: 1}", 6, "cluster.compute.time.shape", "greater than 1"),
    (TIME, "{distribution: empirical, file: no.csv}", 6, "cluster.compute.time.file", "give a text file of sec"),
    (TIME, "{distribution: empirical, file: .}", 6, "cluster.compute.time.file", "give a text file of seconds"),
    (TIME, "{distribution: empirical, file: bad.csv}", 6, "cluster.compute.time.file", "line 2 of the file is 'x'"),
    (TIME, "{distribution: empirical, file: void.csv}", 6, "cluster.compute.time.file", "the file is empty"),
    ("worker: 3", "worker: 4", 8, "cluster.stragglers[0].worker", "must be less than cluster.workers (4), not 4"),
    ("worker: 3", "worker: -1", 8, "cluster.stragglers[0].worker", "must be at least 0"),
    ("worker: 3, ", "", 8, "cluster.stragglers[0].worker", "missing; give the worker's number"),
    ("3}\n", "3}\n    - {worker: 3, slowdown: 2}\n", 9, "cluster.stragglers[1].worker", "listed twice; keep one"),
    ("- {worker: 3, slowdown: 3}", "worker: 3", 7, "cluster.stragglers", "must be a list, not a mapping"),
    ("slowdown: 3", "slowdown: 0", 8, "cluster.stragglers[0].slowdown", "must be at least 0.000001, not 0"),
    (DATA, "null", 9, "workload", "exactly one of parameters (sizes only), graph, dataset, task and problem; not null"),
    (DATA, "{}", 9, "workload", "exactly one of parameters (sizes only), graph, dataset, task and problem; it has no key"),
    (DATA, "{datset: digits}", 9, "workload", "exactly one of parameters"),
    (DATA, "{dataset: digits, problem: logistic}", 9, "workload", "it has dataset, problem"),
    (DATA, "{dataset: digit}", 9, "workload.dataset", "must be 'digits', 'mnist', 'fashion-mnist', 'cifar10' or"),
    (DATA, "{dataset: digits, noise: 1}", 9, "workload.noise", "unknown key (valid: batch_norm, batch_size"),
    (DATA, "{dataset: digits, dtype: float16}", 9, "workload.dtype", "(valid: batch_norm, batch_size, compile, dataset, dropout, layer_times, learning, model, partition, precision, preset)"),
    (DATA, "{dataset: digits, batch_norm: global}", 9, "workload.batch_norm", "must be 'local' or 'synchronised'"),
    (DATA, "{dataset: digits, dropout: batch}", 9, "workload.dropout", "must be 'micro-batch' or 'sample'"),
    (DATA, "{dataset: digits, partition: non-iid}", 9, "workload.partition", "must be iid, {dirichlet: 0.5} or {labels: 2}, not 'non-iid'"),
    (DATA, "{dataset: digits, partition: {}}", 9, "workload.partition", "must be iid, {dirichlet: 0.5} or {labels: 2}, not a mapping"),
    (DATA, "{dataset: digits, partition: {dirichlet: 1, labels: 2}}", 9, "workload.partition", "or {labels: 2}, not a mapping"),
    (DATA, "{dataset: digits, partition: {dirichlt: 1}}", 9, "workload.partition.dirichlt", "did you mean 'dirichlet'?"),
    (DATA, "{dataset: digits, partition: {dirichlet: 0}}", 9, "workload.partition.dirichlet", "must be at least 0.000001, not 0"),
    (DATA, "{dataset: digits, partition: {dirichlet: 1e7}}", 9, "workload.partition.dirichlet", "must be at most 1000000"),
    (DATA, "{dataset: digits, partition: {labels: 0}}", 9, "workload.partition.labels", "must be at least 1"),
    (DATA, "{dataset: digits, partition: {labels: 1.5}}", 9, "workload.partition.labels", "must be a whole number, not 1.5"),
    (DATA, "{problem: quadratic, partition: {labels: 2}}", 9, "workload.partition", "must be iid: the quadratic has no samples"),
    (DATA, "{problem: logistic, density: 0}", 9, "workload.density", "must be greater than 0, not 0"),
    (DATA, "{problem: logistic, density: 1.5}", 9, "workload.density", "must be at most 1, not 1.5"),
    (DATA, "{problem: logistic, density: sparse}", 9, "workload.density", "must be a number"),
    (DATA, "{problem: quadratic, density: 0.1}", 9, "workload.density", "must be 1: the quadratic has no samples"),
    (DATA, "{dataset: digits, density: 0.1}", 9, "workload.density", "unknown key"),
    (DATA, "{parameters: 9, partition: iid}", 9, "workload.partition", "unknown key"),
    (DATA, "{parameters: 9, learning: true}", 9, "workload.learning", "must be false, not true"),
    (DATA, "{parameters: 0}", 9, "workload.parameters", "must be at least 1, not 0"),
    ("batch_size: 32", "batch_size: 0", 9, "workload.batch_size", "must be at least 1, not 0"),
    (DATA, "{parameters: 9}", 11, "stop.epochs", "give workload.dataset, or stop.steps instead"),
    ("{name: downpour, window: 5}", "{window: 5}", 10, "strategy.name", "missing; give the strategy's name"),
    ("{name: downpour, window: 5}", "7", 10, "strategy", "must be a string, not 7"),
    ("{name: downpour, window: 5}", "null", 10, "strategy", "must be a mapping (keys: name), not null"),
    ("name: good", "name: ''", 1, "name", "must not be empty"),
    ("stop: {epochs: 10}\n", "", 1, "stop", "missing; give when to end, such as"),
    ("epochs: 10", "", 11, "stop", "give steps, updates, epochs or time"),
    ("epochs: 10", "epochs: 1.5", 11, "stop.epochs", "must be a whole number"),
    ("epochs: 10", "time: 10", 11, "stop.time", "10 has no unit; write a duration"),
    ("epochs: 10", "target_accuracy: 0.9", 11, "stop.target_accuracy", "give steps, updates, epochs or time too"),
    ("epochs: 10", "steps: 0, updates: 0, time: 0 s", 11, "stop.steps", "(and 2 more problems)"),
    ("seed: 7", "seed: -1", 12, "seed", "must be at least 0"),
    ("seed: 7", "seed: 7\nseed: 8", 13, "seed", "duplicate key; keep one"),
    ("seed: 7", "seed: !!python/object:os.system 7", 12, "seed", "is not allowed; leave it out"),
    ("seed: 7", "seed: !!python/object {a: 7}", 12, "seed", "is not allowed; leave it out"),
    ("seed: 7", "seed: &a [*a]", 12, "seed[0]", "an alias of nothing above, or of itself"),
    ("seed: 7", "7: seed", 12, "", "a key must be a word"),
    ("seed: 7", "[a]: 7", 12, "", "a key must be a word"),
    ("seed: 7", "<<: {seed: 7}", 12, "", "a key must be a word"),
    ("seed: 7", "\tseed: 7", 12, "", "not valid YAML: "),
    ("seed: 7", "seed: [", 12, "", "not valid YAML: the [ is not closed"),
    ("seed: 7", "seed: 7\n---\nseed: 7", 13, "", "a second document; a file is one scenario"),
    ("[4, 8]", "[4, 0]", 14, "sweep.cluster.workers[1]", "must be at least 1, not 0"),
    ("[4, 8]", "[3]", 14, "sweep.cluster.workers[0]", "cluster.stragglers[0].worker: must be less than"),
    ("[4, 8]", "[]", 14, "sweep.cluster.workers", "must have at least one item"),
    ("[4, 8]", "8", 14, "sweep.cluster.workers", "must be a list, not 8"),
    ("cluster.workers:", "cluster.wrokers:", 14, "sweep.cluster.wrokers[0]", "did you mean 'workers'?"),
    ("cluster.workers:", "cluster..x:", 14, "sweep.cluster..x[0]", "'cluster..x' is not a key; write one such as"),
    ("cluster.workers:", "name:", 14, "sweep.name", "cannot be swept; sweep a key such as"),
]  # fmt: skip

# whole files: content, line, what the message says
FILES = [
    (b"", 1, "the file is empty"),
    (b"# nothing\n", 1, "the file is empty"),
    (b"- 1\n", 1, "must be a mapping (keys: name, cluster,"),
    (b"just words\n", 1, "must be a mapping (keys: name, cluster,"),
    (b"name: x\n\xff\xfe", 2, "is not UTF-8 text; save it as UTF-8"),
    (b"name: \0", 1, "not valid YAML: "),
    (b"%YAML 9.9\n---\na: 1", 1, "not valid YAML: "),
    (b"[" * 100_000, 1, "at most 10000 values (each alias counts in full) and 32 levels"),
    (b"- " * 100_000, 1, "32 levels"),
    (b"{a: " * 100_000, 1, "32 levels"),
    (b"[" + b"a," * 400_000 + b"]", 1, "at most 10000 values"),
    (BOMB.encode(), 5, "at most 10000 values"),
    (b"a" * (1 << 20) + b"a", None, "over 1 MiB"),
]

OVERRIDES = [
    ("cluster.workers=0", "cluster.workers: must be at least 1, not 0"),
    ("cluster.workers", "has no '='; write key=value, such as cluster.workers=8"),
    ("=8", "'' is not a key; write one such as cluster.stragglers[0].worker"),
    ("cluster..workers=8", "'cluster..workers' is not a key; write one such as"),
    ("cluster.stragglers[1].slowdown=8", "cluster.stragglers[1]: no such item; the list has 1"),
    ("cluster.workers.x=8", "cluster.workers: is 4, which has no x; set cluster.workers as a whole"),
    ("cluster.netwrk.latency=1 s", "cluster.netwrk: unknown key; did you mean 'network'?"),
    ("cluster.network={latncy: 1 s}", "cluster.network.latncy: unknown key; did you mean 'latency'?"),
    ("cluster.workers=[", "not valid YAML: "),
    ("cluster={a: 1, a: 2}", "duplicate key; keep one"),
    ("parallelism={tensor:2}", "'tensor:2' needs a space after its colon: 'tensor: 2'"),
    ("sweep.cluster.workers=[4, 0]", "sweep.cluster.workers[1]: must be at least 1, not 0"),
    ("workload=null", "exactly one of parameters (sizes only), graph, dataset, task and problem; not null"),
    ("a" + ".a" * 5000 + "=1", "is not a key; write one such as"),
]


def refusal(path: Path | str, *overrides: str) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        load(path, overrides)
    message = str(caught.value)
    assert message.isprintable()  # so it is one line
    assert len(message) < 600 or len(max(overrides, default="")) > 600
    assert not any(
        word in message for word in ("function-", "pydantic", "http", "Input should", "valid valid")
    )
    return caught.value


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "bad.csv").write_text("0.1\nx\n")
    (tmp_path / "void.csv").write_text("\n")
    (tmp_path / "bad.yaml").write_text(GOOD)
    return tmp_path / "bad.yaml"


def test_the_file_is_good_before_it_is_broken(file: Path) -> None:
    assert load(file).name == "good"


@pytest.mark.parametrize(("old", "new", "line", "key", "says"), EDITS)
def test_a_broken_file(file: Path, old: str, new: str, line: int, key: str, says: str) -> None:
    assert GOOD.count(old) == 1
    file.write_text(GOOD.replace(old, new))
    error = refusal(file)
    assert (error.key, error.file, error.line) == (key, str(file), line)
    assert says in error.problem
    assert str(error) == ": ".join(part for part in (f"{file}:{line}", key, error.problem) if part)


@pytest.mark.parametrize(("content", "line", "says"), FILES, ids=[says for _, _, says in FILES])
def test_a_hopeless_file(file: Path, content: bytes, line: int | None, says: str) -> None:
    file.write_bytes(content)
    error = refusal(file)
    assert error.file == str(file)
    assert error.line == line or line is None
    assert says in error.problem


@pytest.mark.parametrize(("change", "says"), OVERRIDES)
def test_a_bad_override_is_to_blame_itself(file: Path, change: str, says: str) -> None:
    error = refusal(file, change)
    assert error.file == f"--set {change}"
    assert error.line is None
    assert says in str(error)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("quikstart", "no such file; shipped scenarios: quickstart"),
        ("ssp", "no such file; shipped scenarios: strategies/ssp"),
        ("no/such/file.yaml", "no such file; shipped scenarios: "),
        ("", "cannot be read: Is a directory; give a scenario file"),
        ("\0", "cannot be read: "),
        ("x" * 400, "cannot be read: "),
        ("/dev/zero", "over 1 MiB"),
    ],
)
def test_a_source_that_is_no_file(source: str, says: str) -> None:
    assert says in str(refusal(source))


def test_a_scenario_is_suggested_once() -> None:
    assert str(refusal("uneven-devices")).endswith("shipped scenarios: pipelines/uneven-devices")


@pytest.mark.slow
def test_a_bomb_costs_little(file: Path) -> None:
    file.write_text(BOMB)
    start = time.process_time()
    refusal(file)
    assert time.process_time() - start < 2 * slowness()
    tracemalloc.start()
    refusal(file)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


_line = st.sampled_from(
    [*GOOD.splitlines(), "---", "...", "%YAML 1.1", "? a", "- b", "x: &x *x", "y: |", "\t"]
)


@pytest.mark.slow
@examples(4, suppress_health_check=list(HealthCheck))
@given(
    content=st.binary() | st.text().map(str.encode) | st.lists(_line).map(lambda ls: "\n".join(ls).encode())
)
@example(content=b"!")
@example(content=b"%TAG ! !\n--- !a b")
@example(content=b"? ")
@example(content=b"a: !!int x")
@example(content=b"a: !!bool x")
@example(content=b"--- *a")
@example(content=b"a: >9999999\n b")
@example(content=b'a: "\\Uffffffff"')
@example(content=b'a: "\\ud800"')
def test_any_bytes_are_a_scenario_or_a_scenario_error(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    file.write_bytes(content)
    message = ""
    try:
        assert isinstance(load(file), Scenario)
    except ScenarioError as error:
        message = str(error)
    assert message.isprintable()
