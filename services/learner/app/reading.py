"""From a manifest in the blob store to what this rank computes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ebbtide import paths
from ebbtide.data.chunks import decode_rows, row_ref
from ebbtide.data.order import DataOrder
from ebbtide.errors import Conflict, NotFound, Refused
from ebbtide.ports import Blobs
from ebbtide.spec import DpoSpec, PolicyGradientSpec, RewardModelSpec, RLHFJobSpec
from ebbtide.wire import (
    BatchManifest,
    DatasetIndex,
    Learn,
    PolicyRef,
    PromptRow,
    RecordedBatch,
    Ref,
    Rollout,
    Row,
    SftSlice,
    decode,
)
from services.learner.core.mini_batches import dealt
from services.learner.core.relayout import on_one_rank
from services.learner.core.samples import (
    MicroBatch,
    Sample,
    Weighting,
    check_manifest,
    group_numbers,
    my_rows,
    pair_samples,
    sample_of,
    supervised_sample,
)
from services.learner.core.sharing import ROW_EACH, Rows
from services.learner.core.slices import my_batches, updates_of
from services.learner.engine.trainer import Work

READS_AT_ONCE = 64


class Reader:
    """Reads for one rank of `ranks`; keeps the dataset's last chunks, which steps share.

    `layout`: how samples become rows of this model.
    """

    def __init__(
        self, *, blobs: Blobs, spec: RLHFJobSpec, rank: int, ranks: int, layout: Rows = ROW_EACH
    ) -> None:
        self._blobs = blobs
        self._layout = layout
        self._spec = spec
        self._rank = rank
        self._ranks = ranks
        self._chunks: dict[str, tuple[PromptRow, ...]] = {}
        self._order: tuple[int, DataOrder] | None = None
        self._gate = asyncio.Semaphore(READS_AT_ONCE)

    async def work_of(self, command: Learn, *, attempt: int, current: PolicyRef | None) -> Work:
        """Read and check all that `command` needs; raises Refused, Conflict, Temporary."""
        if command.manifest.digest != command.token.manifest_digest:
            raise Refused("token and manifest reference name different manifests", field="token")
        manifest = decode(await self._blobs.fetch(command.manifest), BatchManifest)
        if manifest.base != current:
            raise Conflict(f"the batch is for {manifest.base}, the learner is at {current}")
        return await self.work(manifest, attempt=attempt)

    async def work(self, manifest: BatchManifest, *, attempt: int) -> Work:
        """Read and check what `manifest` names, whatever the policy; raises Refused, Temporary."""
        check_manifest(manifest, attempt=attempt, ranks=self._ranks)
        if manifest.sft is not None:
            return Work(updates=await self._supervised(manifest.sft))
        if manifest.recorded is not None:
            manifest = await self._recorded(manifest.recorded)
        return Work(batches=await self._rollouts(manifest))

    async def _recorded(self, named: RecordedBatch) -> BatchManifest:
        """What another job froze; on one rank whatever the number of that job's ranks."""
        try:
            data = await self._blobs.get(paths.batch(named.uid, named.attempt, named.step))
        except NotFound as error:
            raise Refused(
                f"job {named.uid} has no batch of step {named.step} in attempt {named.attempt}:"
                " lower training.totalSteps, or name another job",
                field="recorded",
            ) from error
        manifest = decode(data, BatchManifest)
        if manifest.sft is not None or manifest.recorded is not None:
            raise Refused(f"job {named.uid} sampled no answers itself", field="recorded")
        if self._ranks == 1:
            manifest = on_one_rank(manifest)
        if manifest.ranks != self._ranks:
            raise Refused(
                f"the batches of job {named.uid} are laid out for {manifest.ranks} ranks, this job"
                f" has {self._ranks}: set learner.ranks: {manifest.ranks}, as the job had that"
                " recorded it" + ("" if manifest.ranks == 1 else ", or 1, which takes any"),
                field="recorded",
            )
        check_manifest(manifest, attempt=named.attempt, ranks=self._ranks)
        return manifest

    async def _rollouts(self, manifest: BatchManifest) -> list[MicroBatch]:
        algorithm = self._spec.algorithm
        if not isinstance(algorithm, PolicyGradientSpec):
            raise Refused("a batch of rollouts, but the job is supervised", field="sft")
        weighting = Weighting(
            aggregation=algorithm.aggregation,
            tokens=manifest.tokens,
            sequences=manifest.sequences,
            limit=self._spec.training.max_response_tokens,
        )
        rows = my_rows(manifest, self._rank)
        numbers = group_numbers(manifest)
        reads = (self._sample(row, manifest.base, weighting, numbers) for row in rows)
        samples = await asyncio.gather(*reads)
        # At least one, if only a dummy: without gradient the optimiser's momentum still moves,
        # just as it does when all rows are computed and cancel out.
        bins: list[list[Sample]] = [[] for _ in range(max(1, manifest.microbatches))]
        for row, sample in zip(rows, samples, strict=True):
            bins[row.microbatch].append(sample)
        parts = dealt(bins, self._spec.training.mini_batches, rank=self._rank)
        return [self._layout.of(samples) for samples in parts]

    async def _sample(
        self,
        row: Row,
        base: PolicyRef,
        weighting: Weighting,
        numbers: Mapping[tuple[int, int], int],
    ) -> Sample:
        async with self._gate:
            data = await self._blobs.fetch(row.ref)
        group = numbers[row.key.step_issued, row.key.group]
        algorithm = self._spec.algorithm
        assert isinstance(algorithm, PolicyGradientSpec)
        max_age = algorithm.decoupled.max_age if algorithm.decoupled else 0
        rollout = decode(data, Rollout)
        return sample_of(row, rollout, base, weighting, group=group, max_age=max_age)

    async def _supervised(self, part: SftSlice) -> list[list[MicroBatch]]:
        index = decode(await self._blobs.fetch(part.dataset), DatasetIndex)
        numbers = self._ordered(index.n_rows).take(part.start, part.updates * part.batch)
        rows = await self._rows(index, numbers)
        lengths = [len(row.tokens) + max(len(row.completion), len(row.rejected)) for row in rows]
        updates = updates_of(lengths, batch=part.batch, seed=self._spec.seed + part.start)
        return [self._update([rows[i] for i in update.rows]) for update in updates]

    def _ordered(self, n_rows: int) -> DataOrder:
        """Return the order of the data, which remembers the present epoch between steps."""
        if self._order is None or self._order[0] != n_rows:
            shuffle = self._spec.dataset.shuffle
            made = DataOrder(n_rows=n_rows, seed=self._spec.seed, shuffle=shuffle)
            self._order = (n_rows, made)
        return self._order[1]

    def _update(self, rows: Sequence[PromptRow]) -> list[MicroBatch]:
        if isinstance(self._spec.algorithm, DpoSpec | RewardModelSpec):
            pairs = (pair_samples(row, number) for number, row in enumerate(rows))
            samples = [sample for pair in pairs for sample in pair]
        else:
            total = sum(len(row.completion) // 4 for row in rows)
            samples = [supervised_sample(row, 1.0 / max(1, total)) for row in rows]
        limit = self._spec.training.micro_batch_tokens
        return my_batches(
            samples, rank=self._rank, ranks=self._ranks, limit=limit, layout=self._layout
        )

    async def _rows(self, index: DatasetIndex, numbers: Sequence[int]) -> list[PromptRow]:
        places = [row_ref(index, number) for number in numbers]
        wanted = {place.chunk.digest: place.chunk for place in places}
        read = await asyncio.gather(*(self._chunk(ref) for ref in wanted.values()))
        self._chunks = dict(zip(wanted, read, strict=True))
        return [self._chunks[place.chunk.digest][place.row] for place in places]

    async def _chunk(self, ref: Ref) -> tuple[PromptRow, ...]:
        kept = self._chunks.get(ref.digest)
        if kept is not None:
            return kept
        async with self._gate:
            return decode_rows(await self._blobs.fetch(ref))
