"""The probes of parameters, stops and streams: does the engine do what a request tells it?

All answers continue one text. The answer at temperature 0 is the standard: an answer at a high temperature must equal
it if a field leaves one token to choose from, and other fields must change it.
"""

from __future__ import annotations

from functools import partial

from gateway.core.exchange import AnswerFormat
from gateway.workshop.engine.subject import (
    ANSWER_TOKENS,
    HOT,
    REPEATABLE,
    SEEDS,
    TEXT,
    EngineProbe,
    Params,
    Subject,
    expect,
    require,
)
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.words import quoted

SCHEMA = {"type": "string", "enum": ["gateway-7"]}
CONSTRAINED = '"gateway-7"'
"""The only answer that ``SCHEMA`` allows."""
TWO_IDS = (70, 71)
"""Two token ids of every vocabulary."""
BIASES = (100, 95)
"""The biases of two tokens. The first token is repeated, unless a penalty of 2.0 for each repetition changes this."""
PENALTY = 2.0
GREEDY: Params = {"top_p": 0.000001, "top_k": 1, "min_p": 1.0}
"""Field → the value with which the most likely token alone is left."""
PENALTIES = ("frequency_penalty", "repetition_penalty", "repeat_penalty")
"""Fields that change an answer of one token, repeated, if a bias leaves two tokens to choose from."""


async def _answers(subject: Subject, expected: str, params: Params = EMPTY_MAPPING, *, equal: bool = True) -> str:
    """Ask with further fields, and compare the answer. ``equal``: whether it must be the expected one."""
    found = (await subject.generate(params)).text
    wrong = f"the answer is {quoted(found)}, and should {'' if equal else 'not '}be {quoted(expected)}"
    expect((found == expected) == equal, f"{wrong}, with {dict(params)}")
    return f"the answer is {quoted(found, 24)}, with {dict(params)}"


async def _repeatable(subject: Subject) -> str:
    return await _answers(subject, subject.whole.text)


async def _temperature(subject: Subject) -> str:
    texts = [(await subject.generate({"temperature": HOT, "seed": seed})).text for seed in SEEDS]
    subject.samples = dict(zip(SEEDS, texts, strict=True))
    expect({*texts} != {subject.whole.text}, f"all answers at temperature {HOT:g} equal that at temperature 0")
    return f"{len({*texts})} answers at temperature {HOT:g} differ"


async def _seed(subject: Subject) -> str:
    seed = subject.hot_seed()
    expect(len({*subject.samples.values()}) > 1, f"seeds {[*SEEDS]} give one answer: {quoted(subject.samples[seed])}")
    return await _answers(subject, subject.samples[seed], {"temperature": HOT, "seed": seed})


async def _stream(subject: Subject) -> str:
    whole, subject.streamed = subject.whole, await subject.generate(stream=True)
    streamed, has_usage = subject.streamed, any(subject.streamed.counts)
    both = [(one.text, one.reason, one.counts if has_usage else ()) for one in (streamed, whole)]
    expect(both[0] == both[1], f"streamed {both[0]}, whole {both[1]}")
    return f"the same text and finish_reason in {len(streamed.pieces)} pieces; {'same' if has_usage else 'no'} usage"


async def _max_tokens(subject: Subject) -> str:
    whole, pieces = subject.whole, subject.streamed.pieces
    limit = (whole.counts[1] or len(pieces)) // 2
    require(limit, f"the answer to a fixed text is too short: {quoted(whole.text)}")
    short, begun = await subject.generate({"max_tokens": limit}), "".join(pieces[:limit])
    counted, is_begun = short.counts[1], short.text == begun
    what = f"{counted} tokens" if counted else f"{'' if is_begun else 'not '}the text of {limit} pieces of a stream"
    found = f"{limit} gives {what}, finish_reason {short.reason}: {quoted(short.text)}"
    require(counted or is_begun or not begun.startswith(short.text), "no usage, and pieces may have several tokens")
    expect((counted == limit or is_begun) and short.reason == "length" and len(short.text) < len(whole.text), found)
    return found


async def _usage(subject: Subject) -> str:
    one, (prompt, _) = await subject.generate({"max_tokens": 1}), subject.whole.counts
    require(prompt and one.text == subject.streamed.pieces[0], "no usage, or max_tokens 1 gives another piece of text")
    expect(one.counts == (prompt, 1), f"an answer of 1 token to {prompt} tokens has usage {one.counts}")
    return f"an answer of 1 token to {prompt} tokens has usage {one.counts}"


async def _stop(subject: Subject, *, stream: bool) -> str:
    text, pieces = (subject.streamed if stream else subject.whole).text, subject.streamed.pieces
    borders = [len("".join(pieces[:number])) for number in range(2, 1 + len(pieces) // 2)]
    stops = [text[at - 1 : at + 1] for at in borders if text.find(text[at - 1 : at + 1]) == at - 1]
    require(stops, f"the answer to a fixed text is too short for a stop, or has no stream: {quoted(text)}")
    stop, at, last = stops[-1], text.find(stops[-1]), text[-2:]
    found = await subject.generate(stops=(last, stop) if text.find(last) > at else (stop,), stream=stream)
    what = f"{quoted(stop)}, which spans two tokens: {quoted(found.text)}, finish_reason {found.reason}"
    expect((found.text, found.reason) == (text[:at], "stop"), f"{what}, and not {quoted(text[:at])}")
    return what


async def _stop_token_ids(subject: Subject) -> str:
    ids = subject.whole.completion.choices[0].extras.get("token_ids") or ()
    later = [one for at, one in enumerate(ids) if at and one not in ids[:at]]
    require(later and subject.capabilities.stop_token_ids, "no such field, or the answer has no token ids")
    answer = await subject.generate({"stop_token_ids": later[:1]})
    found = f"{later[:1]}: {quoted(answer.text)}, finish_reason {answer.reason}"
    expect(answer.reason == "stop" and len(answer.text) < len(subject.whole.text), found)
    return found


async def _schema(subject: Subject) -> str:
    wanted = {"type": "json_schema", "json_schema": {"name": "word", "schema": SCHEMA, "strict": True}}
    require(subject.chat or subject.capabilities.constraint, "the engine has no field for a schema")
    constraint = None if subject.chat else AnswerFormat(SCHEMA)
    answer = await subject.generate({"response_format": wanted} if subject.chat else {}, answer_format=constraint)
    text, is_cut = answer.text.strip(), answer.reason == "length"
    right = text == CONSTRAINED or (is_cut and text and CONSTRAINED.startswith(text))
    expect(right, f"the schema allows only {CONSTRAINED}, and the answer is {quoted(answer.text)}")
    return f"the answer is {text}, as the schema allows only {CONSTRAINED}"


async def _choices(subject: Subject) -> str:
    answer = await subject.generate({"temperature": 1, "max_tokens": ANSWER_TOKENS // 2}, n=2)
    found = f"2 gives {len(answer.completion.choices)}"
    require(found == "2 gives 2" or subject.capabilities.choices, f"{found}; the gateway makes single calls here")
    expect(found == "2 gives 2", found)
    return found


async def _greedy(subject: Subject, *, name: str) -> str:
    params = {"temperature": HOT, "seed": subject.hot_seed(), name: GREEDY[name]}
    return await _answers(subject, subject.whole.text, params)


def _bias(subject: Subject) -> Params:
    """Return a bias for two tokens, which the prompt does not contain as far as the gateway knows its tokens."""
    tokens = subject.tokens
    found = [] if tokens is None else sorted({*tokens.tokenize("7;9", False)} - {*tokens.tokenize(TEXT)})
    return {"logit_bias": dict(zip(map(str, found or TWO_IDS), BIASES, strict=False))}


async def _logit_bias(subject: Subject) -> str:
    subject.biased = (await subject.generate(_bias(subject))).text
    expect(subject.biased != subject.whole.text, f"{_bias(subject)['logit_bias']} leaves the answer unchanged")
    return f"{_bias(subject)['logit_bias']} gives {quoted(subject.biased, 24)}"


async def _penalty(subject: Subject, *, name: str) -> str:
    plain = subject.biased
    one_token = plain and subject.tokens is not None and plain == plain[: len(plain) // ANSWER_TOKENS] * ANSWER_TOKENS
    require(one_token, "needs the model's tokenizer, and logit_bias that makes one token repeat")
    return await _answers(subject, plain, {**_bias(subject), name: PENALTY}, equal=False)


IGNORED = "the engine ignores this field, or cuts its effect: correct engine: of the target, or do not use the field"
CUT = "the gateway cuts at stops itself; clients that ask the engine directly get another text"
UPDATE = "clients get another answer than they asked for: update the engine, or report this to its project"
PROBES = (
    EngineProbe(REPEATABLE, 1, "answers cannot be repeated: look for speculation and batching", _repeatable),
    EngineProbe("temperature", 3, IGNORED, _temperature),
    EngineProbe("seed", 1, "samples cannot be repeated: do not rely on seed with this engine", _seed),
    EngineProbe("stream", 1, UPDATE, _stream),
    EngineProbe("max_tokens", 1, UPDATE, _max_tokens),
    EngineProbe("usage", 1, "counts of tokens are wrong: do not rely on the engine's usage", _usage),
    EngineProbe("stop", 1, CUT, partial(_stop, stream=False)),
    EngineProbe("stop in a stream", 1, CUT, partial(_stop, stream=True)),
    EngineProbe("stop_token_ids", 1, IGNORED, _stop_token_ids),
    EngineProbe("json schema", 1, "answers are not constrained: start the engine without a reasoning parser", _schema),
    EngineProbe("n", 1, IGNORED, _choices),
    EngineProbe("logit_bias", 1, IGNORED, _logit_bias),
    *[EngineProbe(name, 1, IGNORED, partial(_greedy, name=name)) for name in GREEDY],
    *[EngineProbe(name, 1, IGNORED, partial(_penalty, name=name)) for name in PENALTIES],
)
