"""A job as its decode actors see it: prompts, publications, commands and facts, on any broker."""

from __future__ import annotations

from collections.abc import Callable

from ebbtide import paths, streams
from ebbtide.data.chunks import chunk_path, encode_rows
from ebbtide.engines.policies import policy_digest
from ebbtide.ports import Blobs, Bus, Consumer
from ebbtide.wire import (
    ActorCommand,
    Assign,
    CommandReply,
    Cut,
    Dispatch,
    Failed,
    Fence,
    Finished,
    Heartbeat,
    JournalRef,
    LoadPolicy,
    Ok,
    PolicyIndex,
    PolicyRef,
    PolicyTensor,
    PromptRef,
    PromptRow,
    Ref,
    SampleKey,
    Sampling,
    Settle,
    Submit,
    decode,
    encode,
    pack_ints,
    unpack_ints,
)

Terminal = Finished | Cut | Failed
ROWS = 8


class Job:
    """Plays the planner towards actors; `fence` is what its commands carry."""

    def __init__(self, *, uid: str, bus: Bus, blobs: Blobs) -> None:
        self.uid, self.bus, self.blobs = uid, bus, blobs
        self.fence = Fence(1, 1)
        self._chunk: Ref | None = None
        self._facts: Consumer | None = None

    # --- what it prepares -------------------------------------------------------------------------

    async def prompts(self) -> Ref:
        """A chunk of prompts, row i being (5, 6, 7 + i)."""
        if self._chunk is None:
            rows = [
                PromptRow(f"p{i}", pack_ints([5, 6, 7 + i]), "", b"{}", "t", "s")
                for i in range(ROWS)
            ]
            self._chunk = await self.blobs.put(chunk_path("data", 0), encode_rows(rows))
        return self._chunk

    async def publish(self, n: int) -> tuple[PolicyRef, Ref]:
        """Policy `n` for engines that look at no weights."""
        tensors = (PolicyTensor("w", "F32", (1,), "w", f"digest {n}"),)
        policy = PolicyRef(n, 1, policy_digest(tensors))
        index = PolicyIndex(policy, tensors, (), (), b"", b"")
        path = f"{paths.policy(self.uid, 1, n)}index.msgpack"
        return policy, await self.blobs.put(path, encode(index))

    async def assign(
        self,
        seq: int,
        policy: PolicyRef,
        *,
        sample: int | None = None,
        resume: JournalRef | None = None,
        given: Ref | None = None,
        turn: int = 0,
        n: int = 40,
    ) -> Assign:
        """Hand-out `seq` of sample `sample` (its own number unless given), `n` tokens long."""
        sample = seq if sample is None else sample
        return Assign(
            key=SampleKey(self.uid, 0, sample, 0, turn),
            dispatch=Dispatch(1, 1, seq),
            policy=policy,
            prompt_id=f"p{sample % ROWS}",
            prompt_ref=PromptRef(await self.prompts(), sample % ROWS),
            sampling=Sampling(1.0, ()),
            noise_key=b"noise %d" % sample,
            max_new_tokens=n,
            resume=resume,
            given=given,
        )

    # --- what it says -----------------------------------------------------------------------------

    async def command(self, pod: str, command: ActorCommand, timeout: float = 5.0) -> CommandReply:
        return await self.raw(pod, encode(command), timeout)

    async def raw(self, pod: str, data: bytes, timeout: float = 5.0) -> CommandReply:
        reply = await self.bus.request(streams.actor(self.uid, pod), data, timeout)
        return decode(reply, CommandReply)  # type: ignore[arg-type]

    async def load(self, pod: str, n: int = 0) -> PolicyRef:
        """Have the actor load policy `n`; returns once it serves it."""
        policy, index = await self.publish(n)
        reply = await self.command(pod, LoadPolicy(self.fence, policy, index))
        assert isinstance(reply, Ok), reply
        await self.beat(pod, lambda beat: beat.policy == policy and beat.state == "serving")
        return policy

    async def submit(self, pod: str, *assigns: Assign) -> None:
        reply = await self.command(pod, Submit(self.fence, assigns))
        assert isinstance(reply, Ok), reply

    async def settle(self, pod: str, *accepted: Terminal, void: tuple[Terminal, ...] = ()) -> None:
        yes, no = (tuple(fact.dispatch for fact in facts) for facts in (accepted, void))
        await self.command(pod, Settle(self.fence, yes, no))

    # --- what it hears ----------------------------------------------------------------------------

    async def beat(self, pod: str, when: Callable[[Heartbeat], bool] = lambda _: True) -> Heartbeat:
        """The first heartbeat from now on that is as wanted."""
        async with self.bus.beats(streams.beat(self.uid, "decode", pod)) as beats:
            async for data in beats:
                beat = decode(data, Heartbeat)
                if when(beat):
                    return beat
        raise AssertionError("beats have no end")

    async def facts(self, count: int) -> dict[int, Terminal]:
        """The next `count` new facts, by sequence number."""
        if self._facts is None:
            subject = streams.facts(self.uid)
            self._facts = await self.bus.consume(streams.FACTS, f"test-{self.uid}", subject)
        found: dict[int, Terminal] = {}
        while len(found) < count:
            for delivery in await self._facts.fetch(100, 1.0):
                fact: Terminal = decode(delivery.data, Terminal)  # type: ignore[arg-type]
                found[fact.dispatch.seq] = fact
                await delivery.ack()
        return found

    async def fact(self) -> Terminal:
        """The next one."""
        [fact] = (await self.facts(1)).values()
        return fact


def running(beat: Heartbeat) -> dict[int, int]:
    """Journalled tokens by sequence number."""
    rows = unpack_ints(beat.running).reshape(-1, 4).tolist()
    return {seq: n for _, _, seq, n in rows}
