"""How long does one event take in the stream's pure parts? ``python bench/stream.py`` prints nanoseconds."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

import orjson

from gateway.backend.openai.events import COMPLETIONS, ChunkReader
from gateway.core.events import Delta, Finish, TokenLogprob
from gateway.stream.fold import Fold
from gateway.stream.sse import SseParser
from gateway.stream.stop_cutter import Cutter
from gateway.wire.responses import ChatWriter

EVENT = (
    b'data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m",'
    b'"choices":[{"index":0,"text":" hello","logprobs":null,"finish_reason":null}]}\n\n'
)
STOPS = ("<eob>", "</s>", "\n<HUMAN>: ")
ROUNDS = 100_000


def bench(name: str, step: Callable[[], object], events: int = 1) -> None:
    """Print the best of five runs, per event."""
    rounds = max(1, ROUNDS // events)
    best = min(_run(step, rounds) for _ in range(5))
    print(f"{name:<42}{best / rounds / events:>8.0f} ns")


def _run(step: Callable[[], object], rounds: int) -> int:
    began = perf_counter_ns()
    for _ in range(rounds):
        step()
    return perf_counter_ns() - began


def main() -> None:
    parser, cutter, fold = SseParser(), Cutter(STOPS), Fold()
    plain, half = Delta(0, " hello"), Delta(0, " 1 < 2\n")
    scored = Delta(0, " hello", (TokenLogprob(" hello", -0.1),))
    many = EVENT * 100
    batch, answer, chunk = [plain], ChunkReader(COMPLETIONS, "m/0", 1), orjson.loads(EVENT[6:])
    speaker = ChatWriter(id_="chatcmpl-1", model="m", created=1, include_usage=False)
    answer.read(chunk)
    bench("sse: one event per read, the straight way", lambda: parser.fast_feed(EVENT))
    bench("sse: 100 events per read, the straight way", lambda: parser.fast_feed(many), 100)
    bench("sse: one event per read", lambda: parser.feed(EVENT))
    bench("sse: 100 events per read", lambda: parser.feed(many), 100)
    bench("json: one chunk", lambda: orjson.loads(EVENT[6:]))
    bench("answer: one chunk, the straight way", lambda: answer.fast_text_delta(chunk))
    bench("answer: one chunk", lambda: answer.read(chunk))
    bench("cut: nothing to hold", lambda: cutter.cut(batch))
    bench("cut: nothing to hold, with logprobs", lambda: cutter.cut([scored]))
    bench("cut: the end is held each time", lambda: cutter.cut([half]))
    bench("cut: make a cutter and end at once", lambda: Cutter(STOPS).cut([Finish(0, "stop")]))
    bench("fold: one delta", lambda: fold.add(plain))
    bench("speak: a batch of one, the straight way", lambda: speaker.frames(batch))


if __name__ == "__main__":
    main()
