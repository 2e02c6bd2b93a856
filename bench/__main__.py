"""Measure the gateway beside its peers: throughput, latency, processor time, memory, start-up.

The measured process runs on the first core, the load and the engine behind it on the last. Every round measures
every subject once before the next round begins, so a slow minute of the machine hits them all.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import results as saved
from bench.interpreter import OtherPython, build, build_of, check_same
from bench.lab import Lab
from bench.measure import KINDS, ORIGINALS, Effort
from bench.plot import svg
from bench.processes import CORES, Unfit, prepare
from bench.results import REFERENCE, Results, machine
from bench.scenarios import GROUPS, SCENARIOS, Scenario, chosen
from bench.subjects import PEERS, SUBJECTS, Subject, before
from bench.table import markdown, summary
from bench.variants import ROOT, VARIANTS

EXAMPLES = """examples:
  python -m bench                                            everything; more than an hour
  python -m bench --only nonstream,stream@128 --rounds 5     two groups or scenarios
  python -m bench --peers gateway,sglang-router,nginx --only nonstream --seconds 3
  python -m bench --only layers,growth --peers gateway       the gateway against itself; installs nginx only
  python -m bench --only renders --opencompass VENV/bin/python --lazyllm OTHER/bin/python
  python -m bench --only nonstream@32 --before ../other --peers gateway   this checkout beside another one
  python -m bench --smoke                                    a few seconds; does it run?
  python -m bench --table bench/results/latest.json          the table and the plot again
  python -m bench --list                                     scenarios and subjects
"""
SMOKE = ("nonstream@1", "nonstream@32", "stream@128", "idle@2000", "startup", "renders")
MOST_SECONDS = 60.0
MOST_ROUNDS = 50


def main(argv: list[str] | None = None) -> int:
    """Run the suite; 0 if the gateway could be measured in every scenario."""
    args = _arguments(argv)
    if args.list:
        return _list()
    if args.table:
        return _write(saved.load(args.table), args.table)
    try:
        scenarios = chosen(SMOKE if args.smoke and not args.only else args.only)
    except KeyError as error:
        print(f"no scenario or group {error}; python -m bench --list names them", file=sys.stderr)
        return 2
    if unknown := [name for name in args.peers if name not in SUBJECTS]:
        print(f"no subject {', '.join(unknown)}; python -m bench --list names them", file=sys.stderr)
        return 2
    try:
        pythons = _pythons(scenarios, args)
    except OtherPython as error:
        print(error, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leave by the door that ends the children
    prepare()
    if len(CORES) < 2:
        print("only one core: load and proxy share it, and the numbers mean little", file=sys.stderr)
    results = run(scenarios, args, pythons)
    return _write(results, args.out) or _missing(results, scenarios)


def run(scenarios: list[Scenario], args: argparse.Namespace, pythons: dict[str, str]) -> Results:
    """Measure; what has been measured is kept when the run is interrupted. ``pythons``: see ``Results``."""
    results = Results(machine(), {"rounds": args.rounds, "seconds": args.seconds}, pythons=pythons)
    effort = Effort(
        args.seconds,
        0.0 if args.smoke else 1.0,
        20 if args.smoke else 100_000,
        args.opencompass,
        args.lazyllm,
        args.any_python,
    )
    plan = [(scenario, subject) for scenario in scenarios for subject in _subjects(scenario, args)]
    total, done, began = len(plan) * args.rounds, 0, time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="gateway-bench-") as folder,
        Lab(args.cache, Path(folder), fetch=not args.smoke) as lab,
    ):
        try:
            for scenario, number, subject in _order(scenarios, args, lab):
                done += 1
                said = _measure(lab, results, scenario, subject, effort, first=number == 0)
                left = (time.monotonic() - began) / done * (total - done)
                where = f"[{done}/{total}, {left / 60:.0f} min left] {scenario.name} round {number + 1}"
                print(f"{where} {subject.name}: {said}", file=sys.stderr, flush=True)
                if done % 20 == 0:
                    results.save(args.out)
        except KeyboardInterrupt:
            print("interrupted; what has been measured is written", file=sys.stderr)
    return results


def _pythons(scenarios: list[Scenario], args: argparse.Namespace) -> dict[str, str]:
    """The Pythons of what renders, by subject. Raises OtherPython, before an hour is spent."""
    measured = {subject.name for each in scenarios if each.kind == "renders" for subject in _subjects(each, args)}
    named = {name: getattr(args, name) for name in ORIGINALS if name in measured and getattr(args, name)}
    if not named:
        return {}
    found = {name: build_of(str(python)) for name, python in named.items()}
    for name, theirs in found.items():
        if not args.any_python:
            check_same(name, theirs)
    return {REFERENCE: build(), **found}


def _order(scenarios: list[Scenario], args: argparse.Namespace, lab: Lab) -> Iterator[tuple[Scenario, int, Subject]]:
    for scenario in scenarios:
        subjects = _subjects(scenario, args)
        for number in range(args.rounds):
            for subject in subjects:
                yield scenario, number, subject
        lab.rest()


def _subjects(scenario: Scenario, args: argparse.Namespace) -> list[Subject]:
    """Those of a scenario that are wanted; a variant comes with the gateway, and so does the other checkout's."""
    wanted: tuple[str, ...] = args.peers
    found = [
        SUBJECTS[name]
        for name in scenario.subjects
        if not wanted or name in wanted or (name.startswith("gateway+") and "gateway" in wanted)
    ]
    names = [subject.name for subject in found]
    if args.before and REFERENCE in names and scenario.kind != "renders":
        found.insert(names.index(REFERENCE) + 1, before(args.before))
    return found


def _measure(lab: Lab, results: Results, scenario: Scenario, subject: Subject, effort: Effort, first: bool) -> str:
    reasons = results.unfit.setdefault(scenario.name, {})
    numbers = None
    if subject.name not in reasons:
        try:
            numbers = KINDS[scenario.kind](lab, subject, scenario, effort, first)
        except Unfit as reason:
            reasons[subject.name] = str(reason)
        except OSError as error:  # a subject that hangs up on a control request, say
            reasons[subject.name] = f"{type(error).__name__}: {error}"
    results.add(scenario.name, subject.name, numbers)
    return f"unfit: {reasons[subject.name]}" if numbers is None else summary(numbers)


def _write(results: Results, out: Path) -> int:
    results.save(out)
    table = markdown(results)
    out.with_suffix(".md").write_text(table, encoding="utf-8")
    out.with_suffix(".svg").write_text(svg(results), encoding="utf-8")
    print(table)
    print(f"written: {out}, {out.with_suffix('.md').name}, {out.with_suffix('.svg').name}", file=sys.stderr)
    return 0


def _missing(results: Results, scenarios: list[Scenario]) -> int:
    missing = {row.name for row in scenarios for name in results.unfit.get(row.name, {}) if name.startswith("gateway")}
    if missing:
        print(f"the gateway could not be measured in: {', '.join(sorted(missing))}", file=sys.stderr)
    return int(bool(missing))


def _list() -> int:
    for group in GROUPS:
        print(group)
        for row in SCENARIOS.values():
            if row.group == group:
                print(f"  {row.name:<16}{row.says}")
    print("subjects (--peers)")
    for subject in (*(SUBJECTS[name] for name in VARIANTS if "+" not in name), *PEERS):
        print(f"  {subject.name:<16}{subject.says}")
    print("variants (with the subject gateway)")
    for name in VARIANTS:
        if "+" in name:
            print(f"  {name:<24}{VARIANTS[name].says}")
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", type=_names, default=(), metavar="NAME,…", help="scenarios or groups of them (default: all)")
    add("--peers", type=_names, default=(), metavar="NAME,…", help="subjects to measure (default: all)")
    add("--rounds", type=int, default=None, help="interleaved rounds (default: 5)")
    add("--seconds", type=float, default=None, help="of each measurement (default: 3)")
    add("--out", type=Path, default=ROOT / "bench" / "results" / "latest.json", metavar="FILE",
        help="the JSON file; the table and the plot go beside it (default: bench/results/latest.json)")  # fmt: skip
    add("--cache", type=Path, default=ROOT / ".bench", metavar="FOLDER",
        help="where peers are installed, once (default: .bench)")  # fmt: skip
    add("--before", type=Path, metavar="FOLDER",
        help="a checkout of another version, measured as gateway-before in the same rounds")  # fmt: skip
    add("--opencompass", type=Path, metavar="PYTHON", help="a Python that has opencompass, for the renders")
    add("--lazyllm", type=Path, metavar="PYTHON", help="a Python that has lazyllm, for the renders")
    add("--any-python", action="store_true",
        help="render on, though these are other builds of Python than the gateway's; the table tells")  # fmt: skip
    add("--smoke", action="store_true", help="tiny counts, the gateway only, nothing installed")
    add("--table", type=Path, metavar="FILE", help="measure nothing: write the table and the plot of a JSON file again")
    add("--list", action="store_true", help="name scenarios and subjects")
    args = parser.parse_args(argv)
    args.cache = args.cache.absolute()
    if args.before and not (args.before / "gateway" / "__main__.py").is_file():
        parser.error(f"--before {args.before}: no checkout of the gateway there")
    args.before = args.before and args.before.absolute()
    args.rounds = args.rounds if args.rounds is not None else (1 if args.smoke else 5)
    args.seconds = args.seconds if args.seconds is not None else (0.5 if args.smoke else 3.0)
    if args.smoke and not args.peers:
        args.peers = ("gateway", "direct")
    if not 0 < args.seconds <= MOST_SECONDS or not 1 <= args.rounds <= MOST_ROUNDS:
        parser.error(f"--seconds goes up to {MOST_SECONDS:.0f}, --rounds from 1 to {MOST_ROUNDS}")
    return args


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


if __name__ == "__main__":
    sys.exit(main())
