"""Draws follow the tempered distribution, and report its log-probability."""

from __future__ import annotations

import pytest
import torch

from ebbtide.engines.torch.sampling import Noise, draw

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, float("-inf")])


def _draw(n: int, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    noise = Noise(torch.full((n,), 7), torch.arange(n), torch.full((n,), temperature))
    drawn = draw(LOGITS.expand(n, -1), noise, greedy=temperature == 0)
    return drawn.tokens, drawn.logprobs


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_follow_the_tempered_distribution(temperature: float) -> None:
    tokens, _ = _draw(20_000, temperature)
    expected = torch.softmax(LOGITS / temperature, dim=0)
    seen = torch.bincount(tokens, minlength=5) / 20_000
    assert float((seen - expected).abs().max()) < 0.012


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_log_probabilities_are_after_temperature(temperature: float) -> None:
    tokens, logprobs = _draw(64, temperature)
    expected = torch.log_softmax(LOGITS / temperature, dim=0)[tokens]
    torch.testing.assert_close(logprobs, expected)


@pytest.mark.parametrize("greedy", [True, False])
def test_temperature_zero_takes_the_likeliest(greedy: bool) -> None:
    noise = Noise(torch.arange(8), torch.arange(8), torch.zeros(8))
    drawn = draw(LOGITS.expand(8, -1), noise, greedy=greedy)
    assert drawn.tokens.tolist() == [0] * 8
    torch.testing.assert_close(drawn.logprobs, torch.log_softmax(LOGITS, 0)[0].expand(8))


def test_rows_of_unlike_temperature_do_not_touch() -> None:
    noise = Noise(torch.tensor([5, 5]), torch.tensor([3, 3]), torch.tensor([0.0, 1.0]))
    both = draw(LOGITS.expand(2, -1), noise, greedy=False)
    alone = draw(LOGITS[None], Noise(*(field[1:] for field in noise)), greedy=False)
    assert torch.equal(both.logprobs[1:], alone.logprobs)
