"""TRL's conventions: text and messages, prompts and completions."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide.data.rendering import Fields, Rendered, Renderer
from ebbtide.errors import Refused

CHAT = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
USER = [{"role": "user", "content": "ab"}]


@pytest.fixture
def render(tokenizer: Any, make_row: Any) -> Any:
    def render(template: str | None = None, supervised: bool = False, **fields: Any) -> Rendered:
        names = Fields(completion="completion" if supervised else "")
        renderer = Renderer(tokenizer=tokenizer, template=template, fields=names)
        return renderer.render([make_row(**fields)])[0]

    return render


def test_text_is_tokenised_as_it_is(render: Any, tokenizer: Any) -> None:
    found = render(prompt="ab, c")
    assert found.text == "ab, c"
    assert tokenizer.convert_ids_to_tokens(found.prompt) == ["a", "b", ", ", "c"]


def test_messages_go_through_the_template_with_a_generation_prompt(render: Any) -> None:
    assert render(CHAT, prompt=USER).text == "<user>ab;<assistant>"


def test_a_last_assistant_message_is_continued(render: Any) -> None:
    found = render(CHAT, prompt=[*USER, {"role": "assistant", "content": "so"}])
    assert found.text == "<user>ab;<assistant>so"


def test_template_arguments_of_the_row_reach_the_template(render: Any) -> None:
    found = render("{{ mood }}", prompt=USER, chat_template_kwargs={"mood": "glad"})
    assert found.text == "glad"


def test_a_text_completion_continues_the_prompt_and_ends_with_eos(
    render: Any, tokenizer: Any
) -> None:
    found = render(supervised=True, prompt="ab", completion="<answer>c</answer>")
    ended = ["<answer>", "c", "</answer>", "<eos>"]
    assert tokenizer.convert_ids_to_tokens(found.completion) == ended


def test_an_eos_in_the_completion_is_not_doubled(render: Any, tokenizer: Any) -> None:
    found = render(supervised=True, prompt="ab", completion="c<eos>")
    assert tokenizer.convert_ids_to_tokens(found.completion) == ["c", "<eos>"]


def test_a_token_across_the_border_leaves_the_prompt_as_the_model_will_see_it(
    render: Any, tokenizer: Any
) -> None:
    found = render(supervised=True, prompt="a,", completion=" b")
    assert tokenizer.convert_ids_to_tokens(found.prompt) == ["a", ","]
    assert tokenizer.convert_ids_to_tokens(found.completion) == [" ", "b", "<eos>"]


def test_a_conversation_is_completed_by_the_template_alone(render: Any, tokenizer: Any) -> None:
    answer = [{"role": "assistant", "content": "c"}]
    found = render(CHAT, supervised=True, prompt=USER, completion=answer)
    assert found.text == "<user>ab;<assistant>"
    assert tokenizer.decode(found.completion) == "c;"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"question": "ab"}, "rows.jsonl:1 lacks the field 'prompt'; it has: question"),
        ({"prompt": ""}, "must be text or a list of messages"),
        ({"prompt": 7}, "must be text or a list of messages"),
        ({"prompt": [{"content": "ab"}]}, "must be a list of messages"),
        ({"prompt": [{"role": "user"}]}, "has a message without content"),
        ({"prompt": USER, "completion": "text"}, "must be messages, as the prompt is"),
        ({"prompt": "ab", "completion": USER}, "must be text, as the prompt is"),
    ],
)
def test_a_row_that_does_not_fit_is_named(
    render: Any, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        render(CHAT, supervised="completion" in fields, **fields)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "the chat template fails"),
        ("{% if %}", "the chat template fails"),
        ("{{ raise_exception('no user') }}", "no user"),
    ],
)
def test_a_bad_template_is_named(render: Any, template: str | None, message: str) -> None:
    with pytest.raises(Refused, match=message) as caught:
        render(template, prompt=USER)
    assert caught.value.field == "/spec/model/chatTemplate"


def test_a_template_that_rewrites_the_prompt_is_refused(render: Any) -> None:
    template = "{{ messages | length }}{{ messages[0].content }}"
    answer = [{"role": "assistant", "content": "c"}]
    with pytest.raises(Refused, match="renders the prompt differently"):
        render(template, supervised=True, prompt=USER, completion=answer)
