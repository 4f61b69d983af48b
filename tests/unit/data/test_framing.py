"""A reply is framed as the chat template would have framed it, without what was sampled."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide.data.framing import Framing
from ebbtide.data.rendering import Fields, Rendered, Renderer
from ebbtide.errors import Refused
from ebbtide.turns import given_ids
from ebbtide.wire import pack_ints

CHAT = (
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}<eos>; {% endfor %}"
    "{% if add_generation_prompt %}a:{% if brief %}x{% endif %}{% endif %}"
)
DEAF = "{{ messages[0].content }}"
USER = [{"role": "user", "content": "ab"}]


@pytest.fixture
def render(tokenizer: Any, make_row: Any) -> Any:
    def render(template: str = CHAT, role: str = "user", **fields: Any) -> Rendered:
        framing = Framing(
            role=role,
            stops=["<eos>"],
            encode=lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
        )
        renderer = Renderer(
            tokenizer=tokenizer, template=template, fields=Fields(), framing=framing
        )
        return renderer.render([make_row(**fields)])[0]

    return render


@pytest.mark.parametrize(
    ("drawn", "text"), [("so<eos>", "so<eos>"), ("so</answer>", "so</answer><eos>")]
)
def test_what_was_sampled_and_the_frame_are_the_templates_own_tokens(
    render: Any, tokenizer: Any, drawn: str, text: str
) -> None:
    def encode(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    found, sampled = render(prompt=USER), encode(drawn)
    opens, closes = pack_ints(found.frame.opens), pack_ints(found.frame.closes)
    given = given_ids(pack_ints(sampled), opens, encode("cd"), closes)
    assert [*found.prompt, *sampled, *given] == encode(f"u:ab<eos>; a:{text}; u:cd<eos>; a:")


def test_a_frame_begins_with_the_end_of_the_turn_whichever_token_ended_it(
    render: Any, tokenizer: Any
) -> None:
    assert tokenizer.decode(render(prompt=USER).frame.opens) == "<eos>; u:"


def test_a_reply_is_shown_in_the_role_that_the_job_names(render: Any, tokenizer: Any) -> None:
    assert tokenizer.decode(render(role="tool", prompt=USER).frame.opens) == "<eos>; t:"


def test_settings_of_the_row_shape_its_frame(render: Any, tokenizer: Any) -> None:
    found = render(prompt=USER, chat_template_kwargs={"brief": True})
    assert tokenizer.decode(found.frame.closes).endswith("a:x")


def test_plain_text_has_no_frame(render: Any) -> None:
    assert render(prompt="ab").frame is None


def test_a_template_that_hides_replies_is_refused(render: Any) -> None:
    with pytest.raises(Refused, match="does not show a reply of role user"):
        render(DEAF, prompt=USER)
