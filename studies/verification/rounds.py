"""Cases of `lockstep verify` about waiting for compute: seconds per update, the network being free."""

from lockstep.studies.verification import theory_rounds as theory
from lockstep.studies.verification.case import (
    Case,
    Outcome,
    between_updates,
    constant,
    estimate,
    exact,
    exponential,
    grid,
    pareto,
    simulate,
)
from lockstep.studies.verification.theory import push_then_pull

MEAN = 1.0  # s, of a gradient
SHIFT = 0.5  # s
N, K = 8, 4
UPDATES = 4000


def synchronous(workers: int, shift: float) -> Outcome:
    """A round takes the slowest of n: Δ + H_n/μ."""
    run = simulate("synchronous", {"updates": UPDATES}, workers=workers, time=exponential(MEAN, shift))
    return estimate(theory.exponential_order_statistic(workers, workers, MEAN, shift), between_updates(run))


def synchronous_uniform(workers: int) -> Outcome:
    """The slowest of n uniform times."""
    uniform = {"distribution": "uniform", "low": "1 s", "high": "3 s"}
    run = simulate("synchronous", {"updates": UPDATES}, workers=workers, time=uniform)
    return estimate(theory.uniform_order_statistic(workers, workers, 1, 3), between_updates(run))


def synchronous_pareto(workers: int) -> Outcome:
    """The slowest of n heavy-tailed times (of shape 3: the slowest's variance is finite)."""
    run = simulate("synchronous", {"updates": UPDATES}, workers=workers, time=pareto(MEAN, 3))
    return estimate(theory.pareto_order_statistic(workers, workers, MEAN, 3), between_updates(run))


UNEQUAL = (1.0, 1.0, 2.0, 5.0)  # s of a gradient, of each worker
STRAGGLERS = [{"worker": w, "slowdown": s} for w, s in enumerate(UNEQUAL)]


def unequal_asynchronous() -> Outcome:
    """Σ 1/h_i updates a second: in 1,000 s, which all four divide, exactly 1,000·Σ 1/h_i."""
    run = simulate("asynchronous", {"time": "1000.5 s"}, workers=4, time=constant(1), stragglers=STRAGGLERS)
    return exact(theory.asynchronous_rate(UNEQUAL), run.metrics["updates_per_s"])


def unequal_synchronous() -> Outcome:
    """n/max h gradients a second: everybody waits for the slowest."""
    run = simulate("synchronous", {"updates": 200}, workers=4, time=constant(1), stragglers=STRAGGLERS)
    return exact(theory.synchronous_rate(UNEQUAL), 4 * run.metrics["updates_per_s"])


def k_sync(k: int, shift: float) -> Outcome:
    """A round takes the k-th fastest of n, the others being cancelled."""
    run = simulate({"name": "k-sync", "k": k}, {"updates": UPDATES}, workers=N, time=exponential(MEAN, shift))
    return estimate(theory.exponential_order_statistic(k, N, MEAN, shift), between_updates(run))


def k_sync_pareto(k: int) -> Outcome:
    """Without the stragglers even a tail without variance does no harm: the k-th fastest has one."""
    run = simulate({"name": "k-sync", "k": k}, {"updates": UPDATES}, workers=N, time=pareto(MEAN, 1.5))
    return estimate(theory.pareto_order_statistic(k, N, MEAN, 1.5), between_updates(run))


def k_batch_sync(k: int, shift: float) -> Outcome:
    """A round takes until k mini-batches are done, by anyone."""
    strategy = {"name": "k-batch-sync", "k": k}
    run = simulate(strategy, {"updates": UPDATES}, workers=N, time=exponential(MEAN, shift))
    return estimate(theory.k_batch_sync(k, N, MEAN, shift), between_updates(run))


def k_async(k: int, shift: float) -> Outcome:
    """An update takes until k workers wait, the others going on."""
    run = simulate(
        {"name": "k-async", "k": k}, {"updates": UPDATES}, workers=N, time=exponential(MEAN, shift)
    )
    return estimate(theory.k_async(k, N, MEAN, shift), between_updates(run))


def k_async_bound(k: int) -> Outcome:
    """At most E[X_{k:n}], also where the state is more than one number (2k < n)."""
    time = exponential(MEAN, SHIFT)
    run = simulate({"name": "k-async", "k": k}, {"updates": UPDATES}, workers=N, time=time)
    bound = theory.exponential_order_statistic(k, N, MEAN, SHIFT)
    return estimate(bound, between_updates(run), at_most=True)


# Independent of the distribution: only its mean counts.
TIMES = {
    "exponential": exponential(MEAN),
    "lognormal": {"distribution": "lognormal", "mean": f"{MEAN} s", "cv": 1.0},
    "gamma": {"distribution": "gamma", "mean": f"{MEAN} s", "cv": 0.5},
    "pareto": pareto(MEAN, 3),
}


def k_batch_async(time: str, k: int) -> Outcome:
    """An update takes until any k mini-batches are done, and nobody waits."""
    run = simulate({"name": "k-batch-async", "k": k}, {"updates": UPDATES}, workers=N, time=TIMES[time])
    return estimate(theory.k_batch_async(k, N, MEAN), between_updates(run))


def backup_workers(workers: int, backups: int) -> Outcome:
    """A round takes the first n gradients of its own version; late ones are dropped when they arrive."""
    strategy = {"name": "backup-workers", "backups": backups}
    run = simulate(strategy, {"updates": UPDATES}, workers=workers + backups, time=exponential(MEAN))
    return estimate(theory.backup_workers(workers, backups, MEAN), between_updates(run))


AVERAGING = 0.6  # s


def averaging_speedup(period: int) -> Outcome:
    """How many times longer runs with averaging every step take; constant compute, and a push and a pull."""

    def step_s(period: int) -> float:
        run = simulate(
            {"name": "model-averaging", "averaging_period": period}, {"updates": 20}, workers=4,
            time=constant(MEAN), parameters=25_000, network={"bandwidth": "1 MB/s"},
        )  # fmt: skip
        return float(between_updates(run).mean()) / period

    ratio = push_then_pull(100_000, 4, 1, 1e6) / MEAN
    return exact(theory.model_averaging_speedup(period, ratio), step_s(1) / step_s(period))


def averaging_step(period: int) -> Outcome:
    """Seconds per local step: the slowest of n sums of τ exponentials; an averaging is all latency."""
    run = simulate(
        {"name": "model-averaging", "averaging_period": period}, {"updates": UPDATES // period}, workers=N,
        time=exponential(MEAN), network={"latency": f"{AVERAGING / 2} s"},
    )  # fmt: skip
    return estimate(theory.model_averaging_step(period, N, MEAN, AVERAGING), between_updates(run) / period)


CASES: list[Case] = [
    *grid(
        "rounds synchronous exponential n={workers} shift={shift}",
        synchronous,
        workers=[2, 8],
        shift=[0, SHIFT],
    ),
    *grid("rounds synchronous uniform n={workers}", synchronous_uniform, workers=[8]),
    *grid("rounds synchronous pareto n={workers}", synchronous_pareto, workers=[8]),
    Case("rounds asynchronous, unequal workers", unequal_asynchronous),
    Case("rounds synchronous, unequal workers", unequal_synchronous),
    *grid("rounds k-sync n=8 k={k} shift={shift}", k_sync, k=[1, K, 8], shift=[0, SHIFT]),
    *grid("rounds k-sync pareto n=8 k={k}", k_sync_pareto, k=[6]),
    *grid("rounds k-batch-sync n=8 k={k} shift={shift}", k_batch_sync, k=[K, N, 12], shift=[0, SHIFT]),
    *grid("rounds k-async n=8 k={k}", lambda k: k_async(k, 0), k=[1, K, 8]),
    *grid("rounds k-async n=8 k={k} shift=0.5", lambda k: k_async(k, SHIFT), k=[K, 6]),
    *grid("rounds k-async n=8 k={k} shift=0.5, bound", k_async_bound, k=[2, K]),
    *grid("rounds k-batch-async {time} n=8 k={k}", k_batch_async, time=list(TIMES), k=[K]),
    *grid("rounds backup-workers n={workers} b={backups}", backup_workers, workers=[6], backups=[0, 1, 4]),
    *grid("rounds model-averaging constant, period={period}", averaging_speedup, period=[2, 10]),
    *grid("rounds model-averaging exponential, period={period}", averaging_step, period=[1, 10]),
]
