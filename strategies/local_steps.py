"""Worker loops that make steps of their own, and push deltas: how far they have moved."""

from collections.abc import Awaitable
from typing import Annotated, Any, Literal

from lockstep.strategies.bounds import Clocks, Momentum, NonNegative, Rate, Steps
from lockstep.strategies.codecs import PUSHED
from lockstep.strategies.copies import Copy
from lockstep.strategies.factors import Needs, Offer, worker_loop
from lockstep.strategies.marks import BelongsTo, Excludes
from lockstep.strategies.multiple import Multiple
from lockstep.strategies.node import Node, Vector
from lockstep.strategies.optimizers import WITH_SQUARES, State, Transformation
from lockstep.strategies.own_step import own_step
from lockstep.strategies.parameter_server import ParameterServer

Window = Annotated[Steps, BelongsTo("push_period", (None,)), BelongsTo("fetch_period", (None,))]
ServerMoments = Annotated[
    Literal["keep", "reset", "average"],
    Needs("average", Offer.AVERAGES_ALONG),
    Excludes(
        "average",
        "codec",
        {"codec": PUSHED[1:], "optimizer": WITH_SQUARES},
        "the mean square that {optimizer} keeps may turn negative on its way: its root is nan; "
        "leave the codec out, or keep or reset the optimizer_state",
    ),
]
_MOMENTUM = 11  # passes over a vector of δv, x + v, x + v − ηg and v − ηg


async def walk(
    node: Node, optimizer: Transformation, parameters: Vector, state: State, batches: int
) -> tuple[Any, State, int]:
    """Make up to so many local steps, at least one: their sum, the optimizer's state, how many they are."""
    total: Any = 0
    made = 0
    while made < batches:
        made += 1
        step, state = await own_step(
            node, optimizer, await node.gradient(parameters), state, parameters, additions=2
        )
        parameters, total = parameters + step, total + step
        if not await node.next_batch_available():
            break
    return total, state, made


# keeps the servers' parameters, and deltas that are not in them yet
@worker_loop(needs={Offer.AHEAD, Offer.PULLS, Offer.ONE_WAY, Offer.CLOCK}, pushes="deltas", keeps=2)
async def cached(
    node: Node,
    server: ParameterServer,
    optimizer: Transformation,
    *,
    bound: Clocks = 3,
    prefetch: bool = True,
) -> None:
    """Stale synchronous parallel: after c pushes go on from a copy with all workers' first c − `bound` in it.

    Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server", §3: the
    worker waits only if its copy is older; its own deltas are in it at once. The server sends newer
    parameters after each push. (Petuum's SSPPush sends as many, but to everyone at once, when the slowest has
    made a clock.) Without `prefetch` a worker asks for them when its copy is too old, and waits, as in the
    paper: less traffic, but each such read takes a round trip.
    """
    copy, state = Copy(node, server, prefetch), optimizer.initial
    parameters, clock = await copy.pull(), 0
    while await node.next_batch_available():
        step, state = await own_step(node, optimizer, await node.gradient(parameters), state, parameters)
        await copy.push(0 + step)
        clock += 1
        if await node.next_batch_available():
            parameters = await copy.read(clock - bound)
    await copy.drain()
    server.leave()


@worker_loop(needs={Offer.PULLS, Offer.ONE_WAY, Offer.AT_ONCE}, pushes="deltas", keeps=1)  # the sum of steps
async def downpour(
    node: Node,
    server: ParameterServer,
    optimizer: Transformation,
    *,
    communication_window: Window = 1,
    push_period: Steps | None = None,
    fetch_period: Steps | None = None,
) -> None:
    """DOWNPOUR: local steps; their sum is pushed, and new parameters fetched, while the worker computes on.

    Dean et al. 2012, algorithm 7.1, every `push_period` (n_push) and `fetch_period` (n_fetch) steps; both are
    the `communication_window` if not given. Parameters that were fetched replace the worker's own, its steps
    since then too. One fetch and one push are under way at most: a network that is too slow holds the worker
    up. The optimizer's state is kept. What remains at the end of the run is pushed as it is.
    """
    push_every, fetch_every = push_period or communication_window, fetch_period or communication_window
    state, parameters = optimizer.initial, await server.pull()
    total: Any = 0
    pushed: list[Awaitable[None]] = []
    while await node.next_batch_available():
        gradient = await node.gradient(parameters)
        step, state = await own_step(node, optimizer, gradient, state, parameters, additions=2)
        total, last = total + step, not await node.next_batch_available()
        if node.step % push_every == 0 or last:
            for leaving in pushed:
                await leaving
            pushed, total = await server.push(total, "commit"), 0
        parameters = await server.fetched(parameters) + step
        if node.step % fetch_every == 0 and not last:
            server.fetch()
    await server.drain()
    server.leave()


@worker_loop(needs={Offer.ANSWERS, Offer.PULLS, Offer.ONE_WAY}, pushes="deltas", keeps=1)  # the sum of steps
async def downpour_blocking(
    node: Node,
    server: ParameterServer,
    optimizer: Transformation,
    *,
    communication_window: Window = 5,
    push_period: Steps | None = None,
    fetch_period: Steps | None = None,
) -> None:
    """As `downpour`, but a worker waits for the answers to what it pushes and fetches, as in dist-keras.

    Both periods are the `communication_window` if not given. The optimizer's state is kept. What remains at
    the end of the run is pushed as it is.
    """
    push_every, fetch_every = push_period or communication_window, fetch_period or communication_window
    state, parameters = optimizer.initial, await server.pull()
    total: Any = 0
    while await node.next_batch_available():
        step, state = await own_step(
            node, optimizer, await node.gradient(parameters), state, parameters, additions=2
        )
        parameters, total = parameters + step, total + step
        fetch, last = node.step % fetch_every == 0, not await node.next_batch_available()
        if node.step % push_every == 0 or last:
            if fetch or last:
                parameters = await server.push_pull(total)
            else:
                await server.push_one_way(total)
            total = 0
        elif fetch:
            parameters = await server.pull()
    server.leave()


@worker_loop(needs={Offer.ANSWERS}, pushes="deltas", keeps=1)  # the sum of steps
async def agn(
    node: Node, server: ParameterServer, optimizer: Transformation, *, communication_window: Steps = 12
) -> None:
    """Accumulated gradient normalisation: λ local steps, of which the mean is pushed, −(1/λ)Σηg.

    Hermans, Spanakis and Möckel 2017, "Accumulated gradient normalization", algorithm 1; dist-keras has it as
    ADAG, with the window of 12. The optimizer's state is kept.
    """
    state, parameters = optimizer.initial, await server.pull()
    while await node.next_batch_available():
        total, state, made = await walk(node, optimizer, parameters, state, communication_window)
        parameters = await server.push_pull(total / made)
    server.leave()


@worker_loop(needs={Offer.ANSWERS}, pushes="deltas", keeps=1)  # the sum of steps
async def averaging(
    node: Node,
    server: ParameterServer,
    optimizer: Transformation,
    *,
    averaging_period: Steps = 10,
    optimizer_state: ServerMoments = "keep",
) -> None:
    """Model averaging: `averaging_period` local steps, then everyone goes on from the mean of all models.

    The mean of the deltas leads to the mean of the models. The
    optimizer's state is kept, or reset, or averaged along: each of its moments is one more vector to send.
    """
    state, parameters = optimizer.initial, await server.pull()
    averaged: list[Vector] = []  # the moments as they were then
    while await node.next_batch_available():
        total, state, _ = await walk(node, optimizer, parameters, state, averaging_period)
        if optimizer_state == "average":
            moments = state[1:]
            moved = (
                [now - before for now, before in zip(moments, averaged, strict=True)] if averaged else moments
            )
            parameters, *averaged = await server.push_pull_along(total, moved)
            state = (state[0], *averaged)
        else:
            parameters = await server.push_pull(total)
        if optimizer_state == "reset":
            state = optimizer.afresh(node.step)
    server.leave()


@worker_loop(needs={Offer.BLOCKS}, pushes="deltas", keeps=1)  # the sum of steps
async def block_averaging(
    node: Node,
    server: ParameterServer,
    optimizer: Transformation,
    *,
    averaging_period: Steps = 10,
    optimizer_state: ServerMoments = "reset",
) -> None:
    """BMUF's workers: as in model averaging, but the optimizer's state is reset (Chen and Huo 2016, §2)."""
    await averaging(
        node, server, optimizer, averaging_period=averaging_period, optimizer_state=optimizer_state
    )


def elasticity(node: Node, rate: float, rho: float | None) -> float:
    """α = ηρ; without ρ α = β/n with β = 0.9, as in the experiments of Zhang et al. 2015.

    That is safe for any number of workers. Workers who meet the centre together move it by nα of their mean
    distance: with α(n + 1) > 2 or so it overshoots, ever farther.
    """
    return 0.9 / len(node.workers) if rho is None else rate * rho


@worker_loop(needs={Offer.CENTRE}, pushes="deltas", keeps=2)  # the centre, and how far from it
async def easgd(
    node: Node,
    server: ParameterServer,
    optimizer: Transformation,
    *,
    communication_window: Steps = 10,
    rho: NonNegative | None = None,
) -> None:
    """Elastic averaging, all together: xⁱ ← xⁱ − ηgⁱ − α(xⁱ − x̃), x̃ ← x̃ + αΣ(xⁱ − x̃), with α = ηρ.

    Zhang, Choromanska and LeCun 2015, "Deep learning with elastic averaging SGD", eqs. 5–6, every
    `communication_window` steps. The server takes means, so β(xⁱ − x̃) is pushed, with β = nα: while it is on
    its way, the worker computes. The model is the centre x̃; a last move towards it ends the run.
    """
    alpha, n = elasticity(node, optimizer.learning_rate, rho), len(node.workers)
    x = centre = await server.pull()
    state = optimizer.initial
    while await node.next_batch_available():
        back: Any = 0.0
        meets = node.step > 0 and node.step % communication_window == 0
        if meets:
            back = alpha * (x - centre)
            await server.push(n * back)
        step, state = await own_step(node, optimizer, await node.gradient(x), state, x)
        x = x + step - back
        if meets:
            centre = await server.answers()
    await server.push_pull(n * alpha * (x - centre))
    server.leave()


@worker_loop(needs={Offer.PULLS, Offer.ONE_WAY}, pushes="deltas", keeps=1)  # how far from the centre
async def aeasgd(
    node: Node,
    server: ParameterServer,
    optimizer: Transformation,
    *,
    communication_window: Steps = 32,
    rho: NonNegative | None = None,
) -> None:
    """Asynchronous elastic averaging: every window d = α(x − x̃), x̃ ← x̃ + d, x ← x − d, with α = ηρ.

    Zhang et al. 2015, algorithm 1: the step is taken at x before it is moved. The window is that of
    dist-keras, whose ρ is 5; without one α is `elasticity`. Stable, if workers come one by one, for
    α ≤ (4 − 2η)/(4 − η) or so. The model is the centre x̃.
    """
    alpha = elasticity(node, optimizer.learning_rate, rho)
    x, state = await server.pull(), optimizer.initial
    while await node.next_batch_available():
        back: Any = 0.0
        if node.step > 0 and node.step % communication_window == 0:
            back = alpha * (x - await server.pull())
            await server.push_one_way(back)
        step, state = await own_step(node, optimizer, await node.gradient(x), state, x)
        x = x + step - back
    await server.push_one_way(alpha * (x - await server.pull()))
    server.leave()


# keeps the velocity, the point ahead, and how far from the centre
@worker_loop(needs={Offer.PULLS, Offer.ONE_WAY}, pushes="deltas", keeps=3)
async def eamsgd(
    node: Node,
    server: ParameterServer,
    *,
    communication_window: Steps = 32,
    rho: NonNegative | None = None,
    learning_rate: Rate = 0.05,
    momentum: Momentum = 0.9,
) -> None:
    """As `aeasgd`, with Nesterov's momentum δ: v ← δv; x ← x + v; g at that x; x ← x − ηg; v ← v − ηg.

    Zhang et al. 2015, algorithm 2 and the authors' code.
    """
    alpha = elasticity(node, learning_rate, rho)
    x = await server.pull()
    velocity: Any = 0.0
    while await node.next_batch_available():
        back: Any = 0.0
        if node.step > 0 and node.step % communication_window == 0:
            back = alpha * (x - await server.pull())
            await server.push_one_way(back)
        velocity = momentum * velocity
        ahead = x + velocity
        step = Multiple(-learning_rate, await node.gradient(ahead))
        await node.apply(lambda: None, _MOMENTUM * step.nbytes)  # the time of what is around it
        x, velocity = ahead + step - back, velocity + step
    await server.push_one_way(alpha * (x - await server.pull()))
    server.leave()
