"""Names fix all randomness; these values must never change."""

import numpy as np

from ebbtide import randomness
from ebbtide.wire import SampleKey


def key(step: int = 0, group: int = 0, index: int = 0, turn: int = 0, job: str = "u") -> SampleKey:
    return SampleKey(job_uid=job, step_issued=step, group=group, index=index, turn=turn)


def rows(n: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return np.arange(n, dtype=np.uint64)


def test_golden_values() -> None:
    assert randomness.noise_key(0, key()).hex() == "8c518bce1643c1c150ff126c37267771"
    assert randomness.noise_key(7, key(3, 2, 1, 4)).hex() == "d1b289ed9f546f091f8b2171bce1da3a"
    assert randomness.resume_seed(bytes(16), 100) == 7016728999763033670
    assert randomness.order_key(7, 1, rows(3)).tolist() == [
        12527597852106534047,
        3052259294643460655,
        10472047136997874951,
    ]


def test_the_job_does_not_change_the_noise() -> None:
    assert randomness.noise_key(7, key(3, job="a")) == randomness.noise_key(7, key(3, job="b"))


def test_every_other_part_of_the_name_does() -> None:
    names = [key(), key(1), key(0, 1), key(0, 0, 1), key(0, 0, 0, 1)]
    assert len({randomness.noise_key(7, name) for name in names}) == 5
    assert randomness.noise_key(7, key()) != randomness.noise_key(8, key())


def test_a_moved_sample_gets_another_seed() -> None:
    seeds = {randomness.resume_seed(bytes(16), start) for start in range(100)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**63 for seed in seeds)
