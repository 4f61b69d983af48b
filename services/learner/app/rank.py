"""One rank: the same steps on every rank, in the same order.

Whatever can fail on one rank alone (reading, writing) is followed by a vote, so that all ranks
go on or none does. What fails inside a collective ends the process.
"""

from __future__ import annotations

import asyncio
import posixpath
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import msgspec

from ebbtide import paths
from ebbtide.engines.policies import INDEX_NAME
from ebbtide.errors import Corrupt, EbbtideError, NotFound, Refused, Temporary
from ebbtide.ports import Blobs, Clock
from ebbtide.wire import (
    AdapterOf,
    Learn,
    Learned,
    LearnerCommand,
    Manifest,
    PolicyIndex,
    Ref,
    Refusal,
    Save,
    Saved,
    Stat,
    decode,
    digest,
    encode,
)
from services.learner.app.lane import Lane
from services.learner.app.reading import Reader
from services.learner.app.restoring import file_digest, read_checkpoint, restore
from services.learner.core.desk import Outcome
from services.learner.core.patience import Patience
from services.learner.core.progress import FILE, Applied, Progress, Published
from services.learner.core.votes import verdict, vote
from services.learner.engine.publishing import Content, write_content
from services.learner.engine.trainer import Trainer, rng_state

T = TypeVar("T")
Word = Published | Saved | Refusal


@dataclass(frozen=True)
class Adapted:
    """What this job's adapters are added to: its index in the store, its digest, their scale."""

    index: Ref
    digest: str
    scale: float

    def seen_from(self, folder: str) -> AdapterOf:
        """The same for a publication in `folder`."""
        path = posixpath.relpath(self.index.path, folder)
        return AdapterOf(msgspec.structs.replace(self.index, path=path), self.digest, self.scale)


class Rank:
    """`skeleton`: folder with config and tokenizer; `staging`: where files are written first.

    `verify`: read each checkpoint back before it is answered for. `patience`: seconds for which
    storage may refuse an update before the job is to fail.
    """

    def __init__(
        self,
        *,
        uid: str,
        attempt: int,
        trainer: Trainer,
        reader: Reader,
        lane: Lane,
        blobs: Blobs,
        clock: Clock,
        skeleton: Path,
        staging: Path,
        verify: bool,
        patience: float,
    ) -> None:
        self._uid = uid
        self._attempt = attempt
        self._trainer = trainer
        self._gang = trainer.gang
        self._reader = reader
        self._lane = lane
        self._blobs = blobs
        self._clock = clock
        self._skeleton = skeleton
        self._staging = staging
        self._verify = verify
        self._patience = Patience(seconds=patience)
        self.progress = Progress()
        self._base: Adapted | None = None

    async def start(self, parent: Ref | None) -> None:
        """Restore from `parent` if there is one, then publish the policy that this is."""
        if parent is not None:
            manifest = await self._restore(parent)
        if self._trainer.scale is not None:
            await self._publish_base()
        outcome = await self._publish()
        if isinstance(outcome, Refusal):
            raise Temporary(f"the first policy cannot be published: {outcome.detail}")
        if parent is not None and outcome.policy != manifest.policy:
            raise Corrupt(f"restored {outcome.policy}, the manifest names {manifest.policy}")

    async def obey(self, command: LearnerCommand) -> Outcome:
        """Do what rank 0 was told; the outcome is the same on every rank."""
        if isinstance(command, Save):
            return await self._save(command)
        return self._patience.judge(await self._learn(command), self._clock.now())

    # --- learning -----------------------------------------------------------------------------

    async def _learn(self, command: Learn) -> Learned | Refusal:
        applied = self.progress.applied
        if applied is not None and applied.token != command.token:
            return Refusal("policy", f"{applied.token} is applied and not published yet")
        refusal = await self._apply(command) if applied is None else None
        if refusal:
            return refusal
        outcome = await self._publish()
        if isinstance(outcome, Refusal):
            return outcome
        assert self.progress.last is not None
        return self.progress.last

    async def _apply(self, command: Learn) -> Refusal | None:
        began = self._clock.now()
        work = await self._together(
            self._reader.work_of(command, attempt=self._attempt, current=self.progress.policy)
        )
        if isinstance(work, Refusal):
            return work
        read = self._clock.now()
        stats = await self._lane.run(self._trainer.learn, work)
        done = self._clock.now()
        stats = {**stats, "read_seconds": read - began, "compute_seconds": done - read}
        updates, skipped = self._trainer.counts
        applied = Applied(
            token=command.token,
            stats=tuple(Stat(name, value) for name, value in sorted(stats.items())),
            seconds=done - began,
        )
        self.progress = self.progress.applying(
            applied,
            updates=updates,
            skipped=skipped,
            course=self._trainer.course,
        )
        return None

    async def _publish(self) -> Published | Refusal:
        began = self._clock.now()
        content = await self._lane.run(self._trainer.content)
        word = await self._leader_says(lambda: self._upload(content, began))
        if isinstance(word, Published):
            self.progress = self.progress.publishing(word)
        assert not isinstance(word, Saved)
        return word

    async def _upload(self, content: Content, began: float) -> Published:
        version = self.progress.next_version()
        target = paths.policy(self._uid, self._attempt, version)
        with TemporaryDirectory(dir=self._staging) as made:
            folder = Path(made) / "policy"
            index = await self._lane.run(
                write_content,
                folder,
                content,
                self._skeleton,
                version=version,
                attempt=self._attempt,
                adapter=self._base.seen_from(target) if self._base else None,
            )
            ref = await self._put_all(index, folder, target)
        return Published(
            policy=index.policy,
            index=ref,
            seconds=self._clock.now() - began,
            size=sum(file.size for file in index.files),
        )

    async def _publish_base(self) -> None:
        """Have what adapters are added to in the store; every attempt finds the same there."""
        content = await self._lane.run(self._trainer.base)
        found = await self._together(self._upload_base(content))
        if isinstance(found, Refusal):
            kind = Refused if found.code == "invalid" else Temporary
            raise kind(f"the adapters' base cannot be published: {found.detail}")
        self._base = found

    async def _upload_base(self, content: Content) -> Adapted:
        """Rank 0 writes it, unless it is there; only rank 0 needs to know where."""
        target, scale = paths.base(self._uid), self._trainer.scale
        assert scale is not None
        if not self._gang.leads:
            return Adapted(Ref("", "", 0), "", scale)
        with TemporaryDirectory(dir=self._staging) as made:
            folder = Path(made) / "base"
            index = await self._lane.run(
                write_content, folder, content, self._skeleton, version=0, attempt=0
            )
            there = await self._there(f"{target}{INDEX_NAME}")
            if there is None:
                ref = await self._put_all(index, folder, target)
                return Adapted(ref, index.policy.digest, scale)
        if there[1].policy.digest != index.policy.digest:
            raise Refused(
                "the weights at model.uri changed since the job began", field="/model/uri"
            )
        return Adapted(there[0], index.policy.digest, scale)

    async def _there(self, path: str) -> tuple[Ref, PolicyIndex] | None:
        try:
            data = await self._blobs.get(path)
        except NotFound:
            return None
        return Ref(path, digest(data), len(data)), decode(data, PolicyIndex)

    async def _put_all(self, index: PolicyIndex, folder: Path, target: str) -> Ref:
        """Upload files side by side, for the disk commits them together, then the index.

        Raises the first error.
        """
        names = [file.path for file in index.files]
        puts = (self._blobs.put_file(f"{target}{name}", folder / name) for name in names)
        # All of them end before the folder goes.
        for end in await asyncio.gather(*puts, return_exceptions=True):
            if isinstance(end, BaseException):
                raise end
        return await self._blobs.put_file(f"{target}{INDEX_NAME}", folder / INDEX_NAME)

    # --- checkpoints --------------------------------------------------------------------------

    async def _save(self, command: Save) -> Saved | Refusal:
        began = self._clock.now()
        if self.progress.applied is not None:
            return Refusal("temporary", "an update is applied and not published yet")
        written = await self._together(self._write_shards(command.step))
        if isinstance(written, Refusal):
            return written
        gathered = await self._lane.run(self._gang.gather, encode(written))
        shards = [ref for refs in gathered for ref in decode(refs, tuple[Ref, ...])]
        word = await self._leader_says(lambda: self._seal(command.step, shards, began))
        assert not isinstance(word, Published)
        return word

    async def _write_shards(self, step: int) -> tuple[Ref, ...]:
        target = paths.shards(self._uid, self._attempt, step)
        # Made by the checkpoint library: if it fails on one rank, all ranks hear of it there.
        folder = self._staging / f"shards-{self._attempt}-{step}-{self._gang.rank}"
        try:
            await self._lane.run(self._trainer.save, folder)
            files = sorted(folder.iterdir())
            refs = [await self._blobs.put_file(f"{target}{path.name}", path) for path in files]
            return tuple([await self._read_back(ref) for ref in refs])
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _read_back(self, ref: Ref) -> Ref:
        """Return `ref`; raises Temporary unless what lies there is what was written."""
        if not self._verify:
            return ref
        try:
            path = await self._blobs.local(ref)
            good = await self._lane.run(file_digest, path) == ref.digest
        except (Corrupt, NotFound):
            good = False
        if not good:
            raise Temporary(f"{ref.path} does not read back as it was written")
        return ref

    async def _seal(self, step: int, shards: list[Ref], began: float) -> Saved:
        kept = msgspec.structs.replace(self.progress, step=step, rng=rng_state())
        target = paths.shards(self._uid, self._attempt, step)
        ref = await self._read_back(await self._blobs.put(f"{target}{FILE}", encode(kept)))
        assert self.progress.policy is not None
        assert self.progress.index is not None
        return Saved(
            attempt=self._attempt,
            step=step,
            policy=self.progress.policy,
            index=self.progress.index,
            shards=(*shards, ref),
            seconds=self._clock.now() - began,
        )

    async def _restore(self, parent: Ref) -> Manifest:
        reading = read_checkpoint(self._blobs, self._lane, parent, uid=self._uid)
        read = await self._together(reading)
        if isinstance(read, Refusal):
            raise Corrupt(f"checkpoint {parent.path} cannot be restored: {read.detail}")
        await restore(self._blobs, self._lane, self._trainer, read, staging=self._staging)
        manifest, self.progress = read
        return manifest

    # --- agreement ----------------------------------------------------------------------------

    async def _together(self, work: Awaitable[T]) -> T | Refusal:
        """Do this rank's `work`; if it failed on any rank, all get the same Refusal."""
        result: T | None = None
        failure = ""
        try:
            result = await work
        except EbbtideError as error:
            failure = vote(error)
        except (msgspec.DecodeError, OSError) as error:
            failure = vote(_known(error))
        refusal = verdict(await self._lane.run(self._gang.votes, failure))
        if refusal:
            return refusal
        assert result is not None
        return result

    async def _leader_says(self, work: Callable[[], Awaitable[Word]]) -> Word:
        """Return the result of rank 0's `work` on every rank; a failure is a Refusal."""
        word: Word = Refusal("unknown", "")
        if self._gang.leads:
            try:
                word = await work()
            except EbbtideError as error:
                word = verdict([vote(error)]) or word
            except OSError as error:
                word = verdict([vote(_known(error))]) or word
        said = await self._lane.run(self._gang.broadcast, encode(word))
        return decode(said, Word)  # type: ignore[arg-type]


def _known(error: Exception) -> EbbtideError:
    if isinstance(error, OSError):
        return Temporary(f"local disk: {error.strerror or error}")
    return Corrupt(f"not what its reference says: {error}")
