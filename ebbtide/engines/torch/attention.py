"""One decode step of grouped-query attention without copying keys and values per head.

transformers repeats each key/value head for its query heads when there is a mask. With one
query a row the query heads of a group can stand in the place of query positions instead: the
same sums, and a third of the time on a CPU.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "ebbtide_rows"


def register() -> None:
    """Make `NAME` known to transformers; doing it again changes nothing."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Attention of `query` (n, heads, t, d) over `key`, `value` (n, groups, w, d)."""
    n, heads, t, d = query.shape
    groups = key.shape[1]
    if t > 1 or heads == groups or rest.get("position_bias") is not None:
        result: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **rest
        )
        return result
    folded = query.reshape(n, groups, heads // groups, d)
    out = scaled_dot_product_attention(folded, key, value, attn_mask=attention_mask, scale=scaling)
    return out.reshape(n, 1, heads, -1), None
