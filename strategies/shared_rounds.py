"""Rounds in which all workers meet, where workers fail and come back: those who are there go on.

A round is a sum of what each adds, after which all hold the same. News (`leave`, `join`, or that another has
halted) breaks it off. Then each tells all others that it has halted, and at which version. When one has heard
that of all who are there, it says how they go on. Who has completed a round that others have not shows them
its state, as nobody can be two ahead; so does one that was there to those who are back. Then the round is
done again, its mean over those who add something. While there is no news nothing is sent for this.

Who is back while its group goes on adds nothing to the first round, for which the others would have to wait;
a group that has not heard that it was gone still waits for what it owes.

After torchft (github.com/pytorch/torchft: the newest state counts, who recovers adds nothing to its first
step), which votes in each step, and elastic Horovod (who is left does a collective that failed again).
"""

from collections import Counter
from contextlib import suppress
from enum import IntEnum
from typing import Any, Protocol

from lockstep.strategies.node import Broken, Group, Message, Node, Source, Vector

NEWS = ("leave", "join", "halt")
State = tuple[Any, ...]
"""Vectors and numbers, in tuples of tuples."""


class Model(Protocol):
    """What all workers hold, and how a round changes it."""

    @property
    def version(self) -> int:
        """Rounds that have changed it."""

    @property
    def vector(self) -> Vector:
        """The parameters, shape (n,)."""

    @property
    def state(self) -> State:
        """All that the next rounds depend on, the parameters among it."""

    def take_over(self, version: int, state: State, own: Any) -> None:
        """Go on from a state that another has shown; `own`: what this worker has added to the last round."""

    @property
    def batches(self) -> int:
        """Mini-batches of each in the next round: as many for those who have made fewer before."""

    async def available(self) -> bool:
        """Whether this worker has anything to add to another round."""

    async def compute(self) -> Any:
        """What it adds to the next round."""

    async def sum(self, own: Any, adding: int, among: Group) -> Any:
        """What comes of the round, to which so many add, this one `own` (None: nothing).

        Raises Broken, and has changed nothing then.
        """

    async def take(self, found: Any, own: Any, counts: State) -> None:
        """Go on to the next version with what has come of the round; save `counts` along with the state."""


class Standing(IntEnum):
    """Of a worker."""

    DONE = 0  # it has no more mini-batches, and adds nothing
    ADDS = 1
    NEW = 2  # it has begun anew, and its state counts only if nobody else has any
    LATE = 3  # it is new, and adds nothing to the group's first round


_STATELESS = (Standing.NEW, Standing.LATE)


class SharedRounds:
    """One worker's part in them."""

    def __init__(self, node: Node, model: Model) -> None:
        self.node, self.model = node, model
        everyone = tuple(node.workers)
        self._count = len(everyone)
        self._there = {*everyone} - {node.rank}
        self._left = set[int]()  # since the group began
        # of the last group that it knows of; who begins anew knows none, but numbers are to rise all the same
        self._number = max(1, round(1e6 * node.now)) if node.rejoins else self._count
        self._group = Group(everyone, tuple(node.hosts), self._number, NEWS)
        self._standing = Standing.NEW if node.rejoins else Standing.ADDS
        self._adding, self._late = {*everyone}, set[int]()
        counts = node.saved.state[-1] if node.saved is not None else [0] * self._count
        self._made = Counter(dict(zip(everyone, counts, strict=True)))  # mini-batches of each in the model
        self._own: Any = None  # what it adds to the next one
        self._broken = node.rejoins

    async def run(self) -> None:
        """Go on until nobody adds anything any more; then still answer those who are back later."""
        if not self._broken:
            if self.node.saved is not None:
                self._take_next()
            self._enter()
        await self._until_done()
        if self.node.rank not in self._left:
            self.node.spawn(self._answer())

    async def _answer(self) -> None:
        async def wait(member: Node, vector: Vector) -> Vector:
            await member.receive("never")
            return vector

        while self.node.rank not in self._left:
            with suppress(Broken):
                await self.node.collective(wait, self.model.vector, self._group)
            self._broken = True
            await self._until_done()

    async def _until_done(self) -> None:
        while self._broken or self._adding or self._late:
            try:
                if self._broken:
                    await self._go_on(await self._agreed())
                await self._round()
            except Broken:
                self._broken = True

    async def _round(self) -> None:
        if self._standing == Standing.DONE and self.node.leaves:
            return self._leave()
        if not self._adding and not self._late:
            return
        model, adds = self.model, self.node.rank in self._adding
        if adds and self._own is None:
            if not await model.available():
                self._standing = Standing.DONE
                raise Broken
            self._own = await model.compute()
        own = self._own if adds else None
        found = await model.sum(own, len(self._adding), self._group)
        self._own = None
        self._made.update(dict.fromkeys(self._adding, model.batches))
        if self._late:
            self._adding, self._late = self._adding | self._late, set()
            self._enter(1)
        await model.take(found, own, self._counts)

    def _leave(self) -> None:
        """Go by plan, once all hold what this worker has added: they do the next round without it."""
        node = self.node
        for other in node.workers:
            if other != node.rank:
                node.send(other, "leave")
        self._left, self._adding, self._late = {node.rank}, set(), set()

    @property
    def _counts(self) -> State:
        return tuple(self._made[worker] for worker in self.node.workers)

    def _enter(self, rounds: int = 0) -> None:
        self.node.enter(self._group, self.model.version + rounds, sorted(self._adding))

    # ---------------------------------------------------------------- how to go on

    def _halt(self, *others: int) -> None:
        for other in others:
            version, number = self.model.version, self._number
            self.node.send(other, "halt", version=version, batches=number, weight=float(self._standing))

    async def _agreed(self) -> Message:
        """Tell all that this worker has halted, and wait until one says how they go on."""
        node, heard, said = self.node, dict[int, Message](), None
        self._halt(*sorted(self._there))
        while said is None or {node.rank, *self._there} != {who for who, _, _ in said.sources}:
            if said is None and not any(map(node.arrived, NEWS)) and self._leads(heard):
                said = self._decide(heard)
                continue
            message = await node.receive(part=0)
            who, number, again = message.sender, message.batches, False
            if message.kind == "halt" and who not in self._there:  # it was to have left by now
                self._there.add(who)
                if said is None:
                    self._halt(who)
            expected = said is not None and who in {member for member, _, _ in said.sources}
            if message.kind == "leave":
                self._there.discard(who)
                self._left.add(who)
                heard.pop(who, None)
                again = expected
            elif message.kind == "join":
                self._there.add(who)
                heard.pop(who, None)
                if said is None:
                    self._halt(who)
                again = said is not None and not expected
            elif message.kind == "halt" and number >= self._number:
                again = number > self._number or said is not None
                self._number = number
            elif message.kind == "go" and number > self._number:
                self._number, said, heard = number, message, {}
            if again:  # this worker has not halted in that group yet
                said, heard = None, {}
                self._halt(*sorted(self._there))
            if message.kind == "halt" and number == self._number and said is None:
                heard[who] = message
        return said

    def _leads(self, heard: dict[int, Message]) -> bool:
        """Whether all others who are there have halted, and this is the one to say how they go on."""
        if not heard.keys() >= self._there:
            return False
        standings = {who: heard[who].weight for who in self._there} | {self.node.rank: self._standing}
        known = [who for who, standing in standings.items() if standing != Standing.NEW]
        return min(known or standings) == self.node.rank

    def _decide(self, heard: dict[int, Message]) -> Message:
        rank = self.node.rank
        own = Source(rank, self.model.version, self._standing)
        told = [Source(who, heard[who].version, Standing(int(heard[who].weight))) for who in self._there]
        anyone = any(standing == Standing.ADDS for _, _, standing in (own, *told))
        members = [
            Source(who, version, Standing.LATE)
            if standing == Standing.NEW and anyone and not self._owes(who)
            else Source(who, version, standing)
            for who, version, standing in sorted((own, *told))
        ]
        self._number = (self._number // self._count + 1) * self._count + self.node.workers.index(rank)
        for other in sorted(self._there):
            self.node.send(other, "go", batches=self._number, sources=tuple(members))
        return Message("go", rank, batches=self._number, sources=tuple(members))

    def _owes(self, who: int) -> bool:
        """Whether the round that was broken off waits for what one would have added that has begun anew."""
        return who in self._adding | self._late and who not in self._left

    async def _go_on(self, said: Message) -> None:
        """Enter the group, and have the newest state that one of them has."""
        node, model, rank = self.node, self.model, self.node.rank
        ranks = tuple(who for who, _, _ in said.sources)
        hosts = dict(zip(node.workers, node.hosts, strict=True))
        self._group = Group(ranks, tuple(hosts[who] for who in ranks), self._number, NEWS)
        self._left = set()
        self._adding = {who for who, _, its in said.sources if its in (Standing.ADDS, Standing.NEW)}
        self._late = {who for who, _, its in said.sources if its == Standing.LATE}
        counting = [each for each in said.sources if each.batches not in _STATELESS] or said.sources
        newest = max(version for _, version, _ in counting)
        shows = min(who for who, version, _ in counting if version == newest)
        behind = [each.worker for each in said.sources if each not in counting or each.version < newest]
        node.enter(self._group, newest, sorted(self._adding))

        async def show(member: Any, vector: Vector) -> Vector:
            if rank == shows:
                for other in behind:
                    _send(member, other, (*model.state, self._counts))
            elif rank in behind:
                state = await _received(member, shows)
                self._made = Counter(dict(zip(node.workers, state[-1], strict=True)))
                own, self._own = self._own, None
                model.take_over(newest, state[:-1], own)
                await node.updated(newest, model.vector, [])
            return vector

        await node.collective(show, model.vector, self._group)
        if self._standing == Standing.NEW:
            self._standing = Standing.ADDS
            self._take_next()
        self._broken = False

    def _take_next(self) -> None:
        """Go on with the mini-batch after those that are in the model."""
        self.node.go_on_with(self._made[self.node.rank])


def _send(member: Any, to: int, state: State) -> None:
    """A message that says what there is, and one for each vector."""
    shape, vectors = list[Source](), list[Vector]()

    def add(part: Any) -> None:
        if isinstance(part, tuple):
            shape.append(Source(0, len(part), 0))
            for each in part:
                add(each)
        elif isinstance(part, int | float):
            shape.append(Source(1, part, 0))  # type: ignore[arg-type]
        else:
            shape.append(Source(2, 0, 0))
            vectors.append(part)

    add(state)
    member.send(to, "state", sources=tuple(shape))
    for vector in vectors:
        member.send(to, "state", vector)


async def _received(member: Any, sender: int) -> State:
    shape = iter((await member.receive("state", sender)).sources)

    async def next_part() -> Any:
        kind, value, _ = next(shape)
        if kind == 0:
            return tuple([await next_part() for _ in range(value)])
        return value if kind == 1 else (await member.receive("state", sender)).body

    found: State = await next_part()
    return found
