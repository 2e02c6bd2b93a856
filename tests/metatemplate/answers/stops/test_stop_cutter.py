"""The cutter: text, log probabilities and fields of every choice end at the stop."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatemplate.answers.stops.stop_cutter import StopCutter
from metatemplate.values.events import Begun, Delta, Document, Event, Finish, TokenLogprob, Usage
from tests.metatemplate.answers.stops.test_stop_search import STOPS
from tests.stream.slicing import sliced, slicings

STOP = Finish(0, "stop")
CUT = Finish(0, "stop", matched="<eob>", source="gateway")


def tokens(*texts: str) -> tuple[TokenLogprob, ...]:
    return tuple(TokenLogprob(text, -0.1 * at) for at, text in enumerate(texts))


def cut(cutter: StopCutter, events: Iterable[Event]) -> list[Event]:
    return [*cutter.process([*events]), *cutter.flush()]


def text(events: Iterable[Event], index: int = 0) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta) and event.index == index)


def logprobs(events: Iterable[Event]) -> tuple[TokenLogprob, ...]:
    return tuple(token for event in events if isinstance(event, Delta) for token in event.logprobs or ())


def finishes(events: Iterable[Event]) -> list[Finish]:
    return [event for event in events if isinstance(event, Finish)]


@pytest.mark.parametrize(("whole", "stops", "seen", "matched"), STOPS.values(), ids=STOPS.keys())
def test_every_slicing_gives_the_same_text_and_one_finish(
    whole: str, stops: tuple[str, ...], seen: str, matched: str | None
) -> None:
    for parts in slicings(whole, cuts=1):
        cutter = StopCutter(stops)
        events = cut(cutter, [*(Delta(0, part) for part in parts), STOP])
        assert text(events) == seen
        assert finishes(events) == [Finish(0, "stop", matched, "gateway") if matched else STOP]
        assert isinstance(events[-1], Finish)
        assert cutter.is_cut_off == (matched is not None)


@pytest.mark.parametrize(("whole", "stops", "seen", "matched"), STOPS.values(), ids=STOPS.keys())
def test_every_token_is_kept_whose_first_character_is_before_the_stop(
    whole: str, stops: tuple[str, ...], seen: str, matched: str | None
) -> None:
    for words in slicings(whole):  # the tokens …
        lps, ends = tokens(*words), {0}
        for word in words:
            ends.add(max(ends) + len(word))
        expected = tuple(lp for lp, end in zip(lps, sorted(ends), strict=False) if end < len(seen)) if whole else lps
        for parts in (words, [whole]):  # … arrive one by one, or all in one delta
            deltas = (
                [Delta(0, whole, lps)]
                if parts == [whole]
                else [Delta(0, part, (lp,)) for part, lp in zip(parts, lps, strict=True)]
            )
            events = cut(StopCutter(stops), [*deltas, STOP])
            assert text(events) == seen
            assert logprobs(events) == expected, (words, parts)


@given(
    st.lists(st.text("ab<", min_size=1, max_size=3), max_size=12),
    st.lists(st.text("ab<", min_size=1, max_size=4), max_size=3).map(tuple),
    st.lists(st.integers(0, 12), max_size=5),
    st.lists(st.integers(0, 3), max_size=12),
)
def test_random_tokens_in_random_deltas_are_cut_alike(
    words: list[str], stops: tuple[str, ...], places: list[int], lags: list[int]
) -> None:
    lps = tokens(*words)
    groups = sliced(lps, sorted(min(place, len(lps)) for place in places))
    at_once = cut(StopCutter(stops), [Delta(0, "".join(words), lps), STOP])
    exact = cut(StopCutter(stops), [*(Delta(0, "".join(lp.token for lp in group), group) for group in groups), STOP])
    behind, lagging = "", []
    for group, lag in zip(groups, [*lags, *[0] * len(groups)], strict=False):
        behind += "".join(lp.token for lp in group)
        ready = max(0, len(behind) - lag)
        lagging.append(Delta(0, behind[:ready], group))
        behind = behind[ready:]
    late = cut(StopCutter(stops), [*lagging, Delta(0, behind), STOP])
    for events in (exact, late):
        assert text(events) == text(at_once)
        assert logprobs(events) == logprobs(at_once)
        assert finishes(events) == finishes(at_once)


def test_logprobs_travel_with_their_text() -> None:
    cutter = StopCutter(("<eob>",))
    a, lt, e = tokens("a", "<", "e")
    assert cutter.process([Delta(0, "a<", (a, lt))]) == [Delta(0, "a", (a,))]
    assert cutter.process([Delta(0, "e", (e,))]) == []
    (x,) = tokens("x")
    assert cutter.process([Delta(0, "x", (x,))]) == [Delta(0, "<", (lt,)), Delta(0, "e", (e,)), Delta(0, "x", (x,))]


def test_a_token_astride_the_cut_is_kept_whole() -> None:
    lps = tokens("7<e", "ob", ">")
    assert cut(StopCutter(("<eob>",)), [Delta(0, "7<eob>", lps)]) == [Delta(0, "7", lps[:1]), CUT]


def test_the_empty_end_token_survives_the_end_of_the_stream() -> None:
    lps = tokens("7", "")
    assert logprobs(cut(StopCutter(("<eob>",)), [Delta(0, "7", lps), STOP])) == lps
    assert logprobs(cut(StopCutter(("<eob>",)), [Delta(0, "7", lps[:1]), Delta(0, "", lps[1:]), STOP])) == lps


def test_tokens_of_a_character_in_pieces_are_cut_right() -> None:
    pieces = tuple(TokenLogprob("\ufffd", -1.0, bytes=(byte,)) for byte in "脷".encode())
    kept = tuple(TokenLogprob("\ufffd", -1.0, bytes=(byte,)) for byte in "好".encode())
    events = [
        *(Delta(0, "", (lp,)) for lp in kept[:2]),
        Delta(0, "好", kept[2:]),
        *(Delta(0, "", (lp,)) for lp in pieces[:2]),
        Delta(0, "脷", pieces[2:]),
        Delta(0, "\n", tokens("\n")),
    ]
    out = cut(StopCutter(("脷\n",)), events)
    assert (text(out), logprobs(out)) == ("好", kept)


def test_odd_tokens_are_kept_rather_than_lost() -> None:
    lps = tokens("<0xE5>", "<0xA5>", "<0xBD>", "!", "<eob>", "x")
    out = cut(StopCutter(("<eob>",)), [Delta(0, "好!<eob>x", lps)])
    assert (text(out), logprobs(out)) == ("好!", lps[:4])
    out = cut(StopCutter(("<eob>",)), [Delta(0, "好!", lps[:4]), Delta(0, "<eo", ()), STOP])
    assert (text(out), logprobs(out)) == ("好!<eo", lps[:4])


def test_an_engine_that_cuts_the_text_but_not_the_logprobs_is_evened_out() -> None:
    lps = tokens("7", "<eob>")
    finish = Finish(0, "stop", matched="<eob>")
    assert cut(StopCutter(("<eob>",)), [Delta(0, "7", lps), finish]) == [Delta(0, "7", lps[:1]), finish]
    finish = Finish(0, "stop", matched=2)
    assert logprobs(cut(StopCutter(("<eob>",)), [Delta(0, "7", tokens("7", "</s>")), finish])) == tokens("7", "</s>")


def test_the_engines_own_finish_stands_after_the_held_text() -> None:
    finish = Finish(0, "length", extras={"stop_reason": None})
    assert cut(StopCutter(("<eob>",)), [Delta(0, "a<eo"), finish]) == [Delta(0, "a"), Delta(0, "<eo"), finish]


def test_the_end_of_the_stream_gives_all_text_and_invents_no_finish() -> None:
    cutter = StopCutter(("<eob>",))
    assert cut(cutter, [Delta(0, "a<eo"), Delta(1, "<")]) == [Delta(0, "a"), Delta(0, "<eo"), Delta(1, "<")]
    assert not cutter.is_cut_off


def test_after_the_stop_the_choice_is_silent_and_usage_passes() -> None:
    cutter = StopCutter(("<eob>",))
    assert cutter.process([Delta(0, "2<eob>\n<HUMAN>: more")]) == [Delta(0, "2"), CUT]
    assert cutter.is_cut_off
    assert cutter.process([Delta(0, "forged")]) == []
    assert cutter.process([Finish(0, "length")]) == []
    assert cutter.process([Usage(3, 1)]) == [Usage(3, 1)]
    assert cutter.flush() == []


def test_a_second_finish_is_swallowed() -> None:
    assert cut(StopCutter(("<eob>",)), [Delta(0, "a"), STOP, STOP, Delta(0, "late")]) == [Delta(0, "a"), STOP]


def test_a_stop_first_gives_a_finish_and_nothing_else() -> None:
    assert cut(StopCutter(("<eob>",)), [Delta(0, "<eob>x")]) == [CUT]


def test_interleaved_choices_do_not_touch_each_other() -> None:
    cutter = StopCutter(("<eob>",))
    out: list[Event] = []
    for index, part in [(0, "a<e"), (1, "b<e"), (0, "ob>x"), (1, "o"), (0, "y"), (1, "c"), (1, "<eob>")]:
        assert not cutter.is_cut_off
        out += cutter.process([Delta(index, part)])
    assert cutter.is_cut_off
    assert (text(out, 0), text(out, 1)) == ("a", "b<eoc")
    assert [finish.index for finish in finishes(out)] == [0, 1]


def test_an_unexpected_index_has_a_choice_of_its_own() -> None:
    cutter = StopCutter(("<eob>",))
    out = cut(cutter, [Delta(5, "z<e"), Delta(0, "ob>"), Finish(5, "stop")])
    assert (text(out, 0), text(out, 5)) == ("ob>", "z<e")
    assert not cutter.is_cut_off


def test_what_is_no_part_of_a_choice_passes_at_once() -> None:
    cutter = StopCutter(("<eob>",))
    cutter.process([Delta(0, "<e")])
    for event in (Begun("m/0"), Usage(1, 2), Document({})):
        assert cutter.process([event]) == [event]


def test_a_delta_without_need_of_cutting_is_passed_as_it_is() -> None:
    cutter = StopCutter(("<eob>",))
    for delta in (Delta(0, "ab", tokens("a", "b")), Delta(0, "", None, {"refusal": None}), Delta(0)):
        assert cutter.process([delta]) == [delta]
        assert cutter.process([delta])[0] is delta


def test_fields_keep_their_place_in_the_text() -> None:
    cutter, call = StopCutter(("<eob>",)), {"tool_calls": [{"index": 0}]}
    assert cutter.process([Delta(0, "a<", fields={"x": 1})]) == [Delta(0, "a", fields={"x": 1})]
    assert cutter.process([Delta(0, fields=call)]) == []
    assert cutter.process([Delta(0, "b")]) == [Delta(0, "<"), Delta(0, fields=call), Delta(0, "b")]


def test_fields_beside_text_that_waits_go_out_at_once_if_nothing_is_before_them() -> None:
    cutter = StopCutter(("<eob>",))
    assert cutter.process([Delta(0, "<e", extras={"prompt_logprobs": [None]})]) == [
        Delta(0, extras={"prompt_logprobs": [None]})
    ]
    assert cutter.process([STOP]) == [Delta(0, "<e"), STOP]


def test_fields_before_the_stop_is_complete_are_never_lost() -> None:
    cutter, call = StopCutter(("<eob>",)), {"tool_calls": [{"index": 0}]}
    events = cut(cutter, [Delta(0, "a<"), Delta(0, fields=call), Delta(0, "eob>", fields={"y": 2})])
    assert events == [Delta(0, "a"), Delta(0, fields=call), Delta(0, fields={"y": 2}), CUT]


def test_logprobs_of_reasoning_go_with_their_fields() -> None:
    delta = Delta(0, "", tokens("hm"), {"reasoning_content": "hm"})
    assert StopCutter(("<eob>",)).process([delta]) == [delta]


def test_tokens_ahead_of_their_text_keep_their_order_before_those_of_reasoning() -> None:
    lps = tokens("<", "hm", "a")
    deltas = [Delta(0, "", lps[:1]), Delta(0, "", lps[1:2], {"reasoning_content": "hm"}), Delta(0, "<a", lps[2:])]
    assert logprobs(cut(StopCutter(("<eob>",)), [*deltas, STOP])) == lps
