"""A reply is encoded as the plain text that it is, whatever a tokenizer's files say."""

from __future__ import annotations

from tokenizers import Tokenizer

from ebbtide.demo import tokenizer as demo
from services.reward.app.library import Words


def words(tokenizer: Tokenizer) -> Words:
    return Words(tokenizer=tokenizer, stop_ids=frozenset())


def test_a_reply_is_encoded_whole_and_without_padding() -> None:
    tokenizer = demo.build()
    whole = tokenizer.encode("abc").ids
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=8)
    assert words(tokenizer).ids("abc") == whole


def test_what_looks_like_an_added_token_is_text_whether_special_or_not() -> None:
    tokenizer = demo.build()
    tokenizer.add_tokens(["<call>"])
    for token in ("<call>", "<eos>"):
        ids = words(tokenizer).ids(f"a{token}b")
        assert ids == [tokenizer.token_to_id(letter) for letter in f"a{token}b"]
