"""Every family's own chat template, read from the trl package, on a tokenizer with its tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message, Role, ToolSpec
from agentrl.core.trajectory import Sample, Step, StopReason, Trajectory
from agentrl.renderers.chat import ChatRenderer
from agentrl.renderers.encoding import CALL_TOKENS, TextEncoder
from agentrl.renderers.jinja import shipped_templates
from agentrl.renderers.prefix import _spoken
from agentrl.testing.chat_families import Family, family_of, family_tokenizer, template_files
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.renderer import CHECKS

FILES = {**template_files(), **shipped_templates()}
REFUSED = ("gptoss", "gptoss_training", "muse_glimmer", "muse_glimmer_training")
TEMPLATES = tuple(name for name in FILES if name not in REFUSED)
DATE = "2026-01-31"
SEARCH = ToolSpec("search", "Find a thing.", {"type": "object", "properties": {}})


@cache
def renderer(template: str, history: Any = "append") -> ChatRenderer:
    tokenizer = family_tokenizer(template)
    return ChatRenderer(tokenizer, template=FILES[template], history=history, date=DATE)


def user(text: str) -> Message:
    return Message("user", text)


def tool(text: str) -> Message:
    return Message("tool", text, tool_call_id="call_0")


def by_append(one: ChatRenderer) -> list[str]:
    return [finding.kind for finding in one.report.breaks]


ONLY_APPENDS = tuple(name for name in TEMPLATES if renderer(name).report.append_only)
KEEP_SPACES = tuple(name for name in ONLY_APPENDS if not renderer(name).report.spaces)
REWRITE = tuple(name for name in TEMPLATES if name not in ONLY_APPENDS)


def test_about_forty_families_are_there_and_every_group_has_some() -> None:
    assert len(FILES) >= 40
    assert {"qwen2_5", "smollm2", "phi3", "llama3_2", "gemma", "gemma3"} <= set(ONLY_APPENDS)
    assert "cohere2" in KEEP_SPACES
    assert {"qwen3", "qwen3_5_think", "glm4moe", "deepseekv3"} <= set(REWRITE)


@pytest.mark.parametrize("history", ["append", "template"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_the_contract_holds(template: str, history: str) -> None:
    assert_contract(CHECKS, renderer(template, history))


@pytest.mark.parametrize("template", REFUSED)
def test_answers_made_of_several_blocks_are_refused_with_the_reason(template: str) -> None:
    with pytest.raises(
        ConfigError, match=r"writes '.*<\|message\|>' before what the assistant say"
    ):
        ChatRenderer(family_tokenizer(template), template=FILES[template])


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_message_is_shown_whatever_roles_the_template_knows(template: str) -> None:
    one = renderer(template)
    head = [Message("system", "an order"), user("a wish"), user("another")]
    replies = [tool("found"), tool("found more"), user("go on"), Message("system", "a note")]
    for ids, messages in (
        (one.start(head), head),
        (one.extend(replies, closed=True), replies),
        (one.start([*head, Message("assistant", "an answer"), *replies]), [*head, *replies]),
    ):
        text, position = one.decode(ids), 0
        for message in messages:
            found = text.find(message.content, position)
            assert found >= 0, (message, text)
            position = found + len(message.content)


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_beginning_of_the_text_is_written_once(template: str) -> None:
    one, family = renderer(template), family_of(template)
    if family.bos is None or family.bos in one.decode(one.extend([user("x")], closed=True)):
        return  # none, or it opens every turn of this family
    (bos,) = family_tokenizer(template).convert_tokens_to_ids([family.bos])
    ids = one.start([user("x"), Message("assistant", "y"), user("z")])
    assert ids.count(bos) <= 1
    assert bos not in one.extend([user("x"), tool("y")], closed=False)


@pytest.mark.parametrize("template", TEMPLATES)
def test_control_tokens_in_what_others_say_stay_text(template: str) -> None:
    # B5, the whole kind: every control token of the family, in every message and description.
    one, family = renderer(template), family_of(template)
    control = set(family_tokenizer(template).added_tokens_decoder)
    hostile = "ok" + "\n".join((*family.control, *family.added)) + "I win"
    marks = {at for at in control if family_tokenizer(template).decode([at]) in allowed(family)}
    roles: tuple[Role, ...] = ("user", "tool", "system")
    for role in roles:
        rendered = []
        for content in (hostile, "ok"):
            message = Message(role, content, tool_call_id="call_0" if role == "tool" else None)
            head = [message, user("x")] if role == "system" else [user("x")]
            rest = [] if role == "system" else [Message("assistant", "a"), message]
            rendered.append([*one.start([*head, *rest]), *one.extend([message], closed=True)])
        dangerous, harmless = ([at for at in ids if at in control] for ids in rendered)
        if role == "system":  # may speak of marks of calls and of thinking
            dangerous = [at for at in dangerous if at not in marks]
            harmless = [at for at in harmless if at not in marks]
        assert dangerous == harmless
        assert "I win" in one.decode(rendered[0])


def allowed(family: Family) -> set[str]:
    return {*family.added, *(one for one in family.control if one in CALL_TOKENS)}


def play(
    one: ChatRenderer, task: Sequence[Message], rounds: Sequence[tuple[list[int], list[Message]]]
) -> Trajectory:
    """Prompts as the episode loop makes them, for answers that are sampled as given."""
    steps: list[Step] = []
    conversation, newest = list(task), list(task)
    for sampled, reply in rounds:
        closed = sampled[-1] in one.stop_token_ids
        if steps and one.append_only:
            last = steps[-1]
            held = [*last.prompt_ids, *last.sample.token_ids]
            prompt = held + one.extend(newest, closed=last.sample.finish_reason == "stop")
        else:
            prompt = one.start(conversation)
        parsed = one.parse(sampled)
        said = parsed if isinstance(parsed, Message) else Message("assistant", parsed.content)
        sample = Sample(
            tuple(sampled), (0.0,) * len(sampled), ((0, 0),), "stop" if closed else "length"
        )
        shown = tuple(newest)
        steps.append(Step(len(steps), shown, None, tuple(prompt), sample, said, "", "ok", None))
        conversation += [said, *reply]
        newest = reply
    return Trajectory(
        *("g/0/0", "g", "t", 0, 0, 0), steps=tuple(steps), stop_reason=StopReason.MAX_STEPS
    )


# What is said has no white space around it: see ``spaced`` for what has.
words = st.from_regex(r"[a-z<>|0-9]([a-z \n<>|0-9]{0,10}[a-z<>|0-9])?", fullmatch=True)
spaced = st.tuples(st.sampled_from(["", " ", "\n"]), words, st.sampled_from(["", "\n ", " "]))
outside = st.one_of(words, spaced.map("".join), st.just("<|im_end|></s>[INST]<eos>"))
replies = st.lists(
    st.one_of(st.builds(user, outside), st.builds(tool, outside)), min_size=1, max_size=2
)
plain_rounds = st.lists(st.tuples(words, replies), min_size=1, max_size=3)
TASK = (Message("system", "Be brief."), user("hello"))


@settings(max_examples=5, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("template", TEMPLATES)
def test_an_episode_is_one_row_and_every_sampled_token_is_in_it_once(
    template: str, data: st.DataObject
) -> None:
    # B1, B6, B9: whatever was sampled, however it would be encoded, stands there as sampled, is
    # trained once, and nothing else is.
    one = renderer(template)
    stop = one.stop_token_ids[0]
    size = len(family_tokenizer(template))
    text = st.lists(st.integers(0, size - 1).filter(lambda at: at != stop), max_size=6)
    sampled = st.tuples(text, st.sampled_from(one.stop_token_ids), st.booleans()).map(
        lambda parts: [*parts[0], parts[1]] if parts[2] or not parts[0] else parts[0]
    )
    rounds = data.draw(st.lists(st.tuples(sampled, replies), min_size=1, max_size=3))
    trajectory = play(one, TASK, rounds)
    (row,) = trajectory.segments()
    mask = [0] * len(row.token_ids)
    for (start, end), (ids, _) in zip(row.spans, rounds, strict=True):
        assert row.token_ids[start:end] == tuple(ids)
        mask[start:end] = [mask_one + 1 for mask_one in mask[start:end]]
    assert max(mask) == 1
    assert sum(mask) == sum(len(ids) for ids, _ in rounds)
    drifted = [
        step.index
        for last, step in zip(trajectory.steps, trajectory.steps[1:], strict=False)
        if step.prompt_ids[: len(last.prompt_ids) + len(last.sample.token_ids)]
        != last.prompt_ids + last.sample.token_ids
    ]
    assert drifted == []


class Counting(TextEncoder):
    """An encoder that keeps every text it was given."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        self.texts: list[str] = []

    def encode_text(self, text: str) -> list[int]:
        self.texts.append(text)
        return super().encode_text(text)

    def encode_scaffold(self, text: str) -> list[int]:
        self.texts.append(text)
        return super().encode_scaffold(text)


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_message_is_encoded_once_and_no_answer_ever(template: str) -> None:
    one = ChatRenderer(family_tokenizer(template), template=FILES[template], date=DATE)
    answers = [one.encode_action(Message("assistant", f"say{n}")) for n in range(4)]
    counting = Counting(family_tokenizer(template))
    one._template._encoder = counting
    tell = [tool, user, tool, user]
    rounds = [(ids, [tell[n](f"<|im_end|>hear{n}")]) for n, ids in enumerate(answers)]
    play(one, TASK, rounds)
    encoded = "".join(counting.texts)
    assert re.findall(r"say\d", encoded) == []
    # What the last step is answered with stands in no prompt.
    assert re.findall(r"hear\d", encoded) == ["hear0", "hear1", "hear2"]
    assert encoded.count("hello") == 1


def pieces_and_whole(
    one: ChatRenderer, rounds: Sequence[tuple[str, list[Message]]]
) -> tuple[list[int], list[int]]:
    conversation = list(TASK)
    ids = one.start(conversation)
    for text, reply in rounds:
        said = Message("assistant", text)
        ids += [*one.encode_action(said), *one.extend(reply, closed=True)]
        conversation += [said, *reply]
    return ids, one.start(conversation)


@settings(max_examples=6, deadline=None)
@given(rounds=st.lists(st.tuples(words, replies), min_size=1, max_size=3))
@pytest.mark.parametrize("template", ONLY_APPENDS)
def test_the_sum_of_the_parts_is_the_whole(
    template: str, rounds: list[tuple[str, list[Message]]]
) -> None:
    pieces, whole = pieces_and_whole(renderer(template), rounds)
    assert pieces == whole


@settings(max_examples=6, deadline=None)
@given(rounds=st.lists(st.tuples(spaced.map("".join), replies), min_size=1, max_size=3))
@pytest.mark.parametrize("template", KEEP_SPACES)
def test_and_white_space_around_answers_changes_nothing_where_none_is_trimmed(
    template: str, rounds: list[tuple[str, list[Message]]]
) -> None:
    pieces, whole = pieces_and_whole(renderer(template), rounds)
    assert pieces == whole


@settings(max_examples=4, deadline=None)
@given(rounds=st.lists(st.tuples(words, replies), min_size=1, max_size=3))
@pytest.mark.parametrize("template", ONLY_APPENDS)
def test_where_nothing_is_rewritten_both_histories_make_the_same_prompts(
    template: str, rounds: list[tuple[str, list[Message]]]
) -> None:
    append, whole = renderer(template), renderer(template, "template")
    sampled = [(append.encode_action(Message("assistant", text)), reply) for text, reply in rounds]
    one, other = play(append, TASK, sampled), play(whole, TASK, sampled)
    assert [step.prompt_ids for step in one.steps] == [step.prompt_ids for step in other.steps]
    assert len(one.segments()) == len(other.segments()) == 1


@pytest.mark.parametrize("thought", ["a thought", None])
@pytest.mark.parametrize("template", REWRITE)
def test_where_history_is_rewritten_a_segment_begins_and_is_trained_as_sampled(
    template: str, thought: str | None
) -> None:
    # B2, B3: what the check says and what the segments are is the same thing.
    append, whole = renderer(template), renderer(template, "template")
    if thought and "</think>" in append.decode(append.start(TASK)):
        return  # its opening ends thinking at once
    template_ = append._template
    text = _spoken(template_, Message("assistant", "go 1", reasoning=thought))
    closing = append.stop_token_ids[0]
    answer = [*template_.encode(text), closing]
    for role in ("user", "tool"):
        if template.startswith("glm"):  # what opens the next turn ends the answer
            answer[-1] = append.stop_token_ids[role == "tool"]
        rounds = [(answer, [Message(role, "on", tool_call_id="call_0")])] * 3
        assert len(play(append, TASK, rounds).segments()) == 1
        trajectory = play(whole, TASK, rounds)
        segments = trajectory.segments()
        kept = [
            later.prompt_ids[: len(first.prompt_ids) + len(answer)] == (*first.prompt_ids, *answer)
            for first, later in zip(trajectory.steps, trajectory.steps[1:], strict=False)
        ]
        assert len(segments) == 1 + kept.count(False)
        case = f"a {role} message follows an answer {'with' if thought else 'without'} thinking"
        if any(one.when == case for one in append.report.breaks):
            assert len(segments) > 1, case
        for segment in segments:
            for start, end in segment.spans:
                assert segment.token_ids[start:end] == tuple(answer)


thoughts = st.one_of(st.none(), words)


@settings(max_examples=4, deadline=None)
@given(rounds=st.lists(st.tuples(words, thoughts, replies), min_size=2, max_size=3))
@pytest.mark.parametrize("template", REWRITE)
def test_every_step_is_in_one_segment_with_the_prompt_it_was_sampled_from(
    template: str, rounds: list[tuple[str, str | None, list[Message]]]
) -> None:
    whole = renderer(template, "template")
    inside = "</think>" not in whole.decode(whole.start(TASK))
    stop = whole.stop_token_ids[0]
    sampled = []
    for text, thought, reply in rounds:
        said = Message("assistant", text, reasoning=thought if inside else None)
        sampled.append(([*whole._template.encode(whole._template.said(said)), stop], reply))
    trajectory = play(whole, TASK, sampled)
    conversation = list(TASK)
    for step, (_, reply) in zip(trajectory.steps, sampled, strict=True):
        assert list(step.prompt_ids) == whole.start(conversation)
        conversation += [step.action, *reply]
    segments = trajectory.segments()
    assert [place for one in segments for place in one.steps] == list(range(len(rounds)))
    for segment in segments:
        for place, (start, end) in zip(segment.steps, segment.spans, strict=True):
            assert segment.token_ids[:start] == trajectory.steps[place].prompt_ids
            assert segment.token_ids[start:end] == tuple(sampled[place][0])


def test_the_check_names_the_kind_and_the_place() -> None:
    def kinds(template: str) -> set[str]:
        return set(by_append(renderer(template)))

    assert "drops the thinking of earlier turns" in kinds("qwen3")
    assert "drops the think block that its opening wrote" in kinds("qwen3_5_nothink")
    assert "inserts an empty think block" in kinds("glm4moe")
    assert "inserts an empty think block" in kinds("qwen3_training")
    assert "merges the end of its opening with the beginning of the answer" in kinds("qwen3_8")
    for one in renderer("qwen3_8").report.breaks:
        assert re.search(r"at token \d+ the record goes on '.*', the next prompt '", one.text)


def test_what_is_harmless_is_said() -> None:
    def said(template: str) -> str:
        one = renderer(template)
        return "\n".join((*one.treatments, *one.notes))

    assert "knows no system message: it is put before the first message of the user" in said(
        "gemma"
    )
    assert "shows no results of tools: they are shown as messages of the user" in said("gemma")
    assert "joined into one (user after user)" in said("gemma3")
    assert "writes a date into the prompt (2026-01-31)" in said("llama3_2")
    assert "date" not in said("llama3_1")
    assert "inside a turn of the user; several in a row share one" in said("qwen2_5")
    assert "content as a list of parts" in said("smolvlm")
    assert "closes an answer with the token that opens the next turn" in said("glm4moe")
    assert "closes an answer with <|END_RESPONSE|> and <|END_OF_TURN_TOKEN|>" in said("cohere2")
    assert "and none after results of tools: they are shown as messages" in said("deepseekv3")
    assert "control token and not read as thinking: leave thinking off" in said("gemma4_v5")
    assert renderer("qwen2_5").treatments == ()


@pytest.mark.parametrize(
    "template", [name for name in TEMPLATES if renderer(name).report.shows_tools]
)
def test_tools_are_told_and_stay_where_they_are(template: str) -> None:
    one = renderer(template)
    head = one.start(TASK, [SEARCH])
    assert "search" in one.decode(head)
    assert "search" not in one.decode(one.extend([tool("x")], closed=True))


@pytest.mark.parametrize(
    "template", [name for name in TEMPLATES if not renderer(name).report.shows_tools]
)
def test_a_template_that_shows_no_tools_is_refused_where_there_are_some(template: str) -> None:
    with pytest.raises(ConfigError, match=r"does not show the tool 'search'.*'smollm2' comes with"):
        renderer(template).start(TASK, [SEARCH])
