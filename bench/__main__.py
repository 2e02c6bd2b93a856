"""Benchmark the gateway and its peers: throughput, latency, CPU time, memory, start-up time.

The system under test runs on the first core; load generator and upstream share the last. Each round measures every
system once before the next round starts, so a slow minute of the machine affects all of them.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.gateway_variants import ROOT, VARIANTS
from bench.measure import MEASURE, REFERENCE_PACKAGES, RunOptions
from bench.processes import CORES, MeasurementError, set_up_process
from bench.rendering.python_build import DifferentPython, build_of, check_same_build, this_build
from bench.report.plot import svg
from bench.report.results import REFERENCE, Results, load, machine
from bench.report.table import markdown, summary
from bench.scenarios import GROUPS, SCENARIOS, Scenario, select
from bench.systems import PEERS, SYSTEMS, System, gateway_of
from bench.testbed import Testbed

EXAMPLES = """examples:
  python -m bench                                            everything; more than an hour
  python -m bench --only nonstream,stream@128 --rounds 5     a group and a scenario
  python -m bench --peers gateway,sglang-router,nginx --only nonstream --seconds 3
  python -m bench --only layers,growth --peers gateway       variants of the gateway; installs nginx only
  python -m bench --only renders --opencompass VENV/bin/python --lazyllm OTHER/bin/python
  python -m bench --only nonstream@32 --peers gateway --checkout before=../other   this checkout and another one
  python -m bench --smoke                                    a few seconds: checks that the suite runs
  python -m bench --table bench/results/latest.json          write the table and the plot again
  python -m bench --list                                     scenarios and systems
"""
SMOKE_SCENARIOS = ("nonstream@1", "nonstream@32", "stream@128", "idle@2000", "startup", "renders")
MAX_SECONDS = 60.0
MAX_ROUNDS = 50


def main(argv: list[str] | None = None) -> int:
    """Run the suite. Exit codes: 0, 1 if the gateway could not be measured in a scenario, 2 for wrong arguments."""
    args = _parse_arguments(argv)
    if args.list:
        return _print_list()
    if args.table:
        return _write_report(load(args.table), args.table)
    try:
        scenarios = select(SMOKE_SCENARIOS if args.smoke and not args.only else args.only)
    except KeyError as error:
        print(f"unknown scenario or group {error}; python -m bench --list prints them", file=sys.stderr)
        return 2
    if unknown := [name for name in args.peers if name not in SYSTEMS]:
        print(f"unknown system {', '.join(unknown)}; python -m bench --list prints them", file=sys.stderr)
        return 2
    try:
        python_builds = _python_builds(scenarios, args)
    except DifferentPython as error:
        print(error, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves through the context managers, which stop children
    set_up_process()
    if len(CORES) < 2:
        print("only one core: load generator and system share it, so the results mean little", file=sys.stderr)
    results = run(scenarios, args, python_builds)
    return _write_report(results, args.out) or _check_gateway(results, scenarios)


def run(scenarios: list[Scenario], args: argparse.Namespace, python_builds: dict[str, str]) -> Results:
    """Measure all rounds; an interrupt (Ctrl-C) keeps the finished ones."""
    results = Results(machine(), {"rounds": args.rounds, "seconds": args.seconds}, python_builds=python_builds)
    options = RunOptions(
        seconds=args.seconds,
        warm_up=not args.smoke,
        max_concurrency=20 if args.smoke else 100_000,
        opencompass=args.opencompass,
        lazyllm=args.lazyllm,
        any_python=args.any_python,
    )
    total = sum(len(_systems(scenario, args)) for scenario in scenarios) * args.rounds
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="gateway-bench-") as folder,
        Testbed(args.cache, Path(folder), install=not args.smoke) as testbed,
    ):
        try:
            for done, (scenario, round_number, system) in enumerate(_schedule(scenarios, args, testbed), 1):
                outcome = _measure(testbed, results, scenario, system, options, first_round=round_number == 0)
                left = (time.monotonic() - began) / done * (total - done)
                progress = f"[{done}/{total}, {left / 60:.0f} min left] {scenario.name} round {round_number + 1}"
                print(f"{progress} {system.name}: {outcome}", file=sys.stderr, flush=True)
                if done % 20 == 0:
                    results.save(args.out)
        except KeyboardInterrupt:
            print("interrupted; writing the results so far", file=sys.stderr)
    return results


def _python_builds(scenarios: list[Scenario], args: argparse.Namespace) -> dict[str, str]:
    """The Python build of each renderer, by system. Raises ``DifferentPython`` before anything is measured."""
    measured = {system.name for each in scenarios if each.kind == "renders" for system in _systems(each, args)}
    given = {name: getattr(args, name) for name in REFERENCE_PACKAGES if name in measured and getattr(args, name)}
    if not given:
        return {}
    builds = {name: build_of(str(python)) for name, python in given.items()}
    if not args.any_python:
        for name, build in builds.items():
            check_same_build(name, build)
    return {REFERENCE: this_build(), **builds}


def _schedule(
    scenarios: list[Scenario], args: argparse.Namespace, testbed: Testbed
) -> Iterator[tuple[Scenario, int, System]]:
    """All measurements in order: in each scenario every round measures every system."""
    for scenario in scenarios:
        for round_number in range(args.rounds):
            for system in _systems(scenario, args):
                yield scenario, round_number, system
        testbed.stop_systems()


def _systems(scenario: Scenario, args: argparse.Namespace) -> list[System]:
    """The requested systems of a scenario; ``gateway`` includes its variants and other checkouts."""
    requested: tuple[str, ...] = args.peers
    systems = [
        SYSTEMS[name]
        for name in scenario.systems
        if not requested or name in requested or (name.startswith("gateway+") and "gateway" in requested)
    ]
    names = [system.name for system in systems]
    if REFERENCE in names and scenario.kind != "renders":
        at = names.index(REFERENCE) + 1
        systems[at:at] = [gateway_of(name, folder) for name, folder in args.checkout]
    return systems


def _measure(
    testbed: Testbed, results: Results, scenario: Scenario, system: System, options: RunOptions, first_round: bool
) -> str:
    """Measure one system in one round; returns a line for the progress output. A failed system is not tried again."""
    failures = results.failures.setdefault(scenario.name, {})
    metrics = None
    if system.name not in failures:
        try:
            metrics = MEASURE[scenario.kind](testbed, system, scenario, options, first_round)
        except MeasurementError as error:
            failures[system.name] = str(error)
        except OSError as error:  # for example, a system that closes the connection of a readiness check
            failures[system.name] = f"{type(error).__name__}: {error}"
    results.add(scenario.name, system.name, metrics)
    return f"failed: {failures[system.name]}" if metrics is None else summary(metrics)


def _write_report(results: Results, out: Path) -> int:
    results.save(out)
    table = markdown(results)
    out.with_suffix(".md").write_text(table, encoding="utf-8")
    out.with_suffix(".svg").write_text(svg(results), encoding="utf-8")
    print(table)
    print(f"written: {out}, {out.with_suffix('.md').name}, {out.with_suffix('.svg').name}", file=sys.stderr)
    return 0


def _check_gateway(results: Results, scenarios: list[Scenario]) -> int:
    """The exit code: 1 if a measurement of the gateway failed."""
    failed = [
        each.name
        for each in scenarios
        if any(name.startswith(REFERENCE) for name in results.failures.get(each.name, {}))
    ]
    if failed:
        print(f"the gateway could not be measured in: {', '.join(sorted(failed))}", file=sys.stderr)
    return int(bool(failed))


def _print_list() -> int:
    for group in GROUPS:
        print(group)
        for row in SCENARIOS.values():
            if row.group == group:
                print(f"  {row.name:<16}{row.description}")
    print("systems (--peers)")
    for system in (*(SYSTEMS[name] for name in VARIANTS if "+" not in name), *PEERS):
        print(f"  {system.name:<16}{system.description}")
    print("variants (measured with the system gateway)")
    for name in VARIANTS:
        if "+" in name:
            print(f"  {name:<24}{VARIANTS[name].description}")
    return 0


def _parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", type=_names, default=(), metavar="NAME,…", help="scenarios or groups (default: all)")
    add("--peers", type=_names, default=(), metavar="NAME,…", help="systems to measure (default: all)")
    add("--rounds", type=int, default=None, help="number of rounds (default: 5)")
    add("--seconds", type=float, default=None, help="duration of each measurement (default: 3)")
    add(
        "--out",
        type=Path,
        default=ROOT / "bench" / "results" / "latest.json",
        metavar="FILE",
        help="results as JSON; table and plot are written beside it (default: bench/results/latest.json)",
    )
    add(
        "--cache",
        type=_absolute_path,
        default=ROOT / ".bench",
        metavar="FOLDER",
        help="folder where peers are installed once (default: .bench)",
    )
    add(
        "--checkout",
        type=_checkout,
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="another checkout, such as an older one, measured as gateway-NAME in the same rounds",
    )
    add(
        "--opencompass",
        type=_absolute_path,
        metavar="PYTHON",
        help="a Python with opencompass installed, for the scenario renders",
    )
    add(
        "--lazyllm",
        type=_absolute_path,
        metavar="PYTHON",
        help="a Python with lazyllm installed, for the scenario renders",
    )
    add(
        "--any-python",
        action="store_true",
        help="accept opencompass and lazyllm on another build of Python; the table names the builds",
    )
    add("--smoke", action="store_true", help="minimal load, the gateway only, nothing is installed")
    add("--table", type=Path, metavar="FILE", help="measure nothing; write the table and the plot of a JSON file again")
    add("--list", action="store_true", help="print scenarios and systems")
    args = parser.parse_args(argv)
    args.rounds = args.rounds if args.rounds is not None else (1 if args.smoke else 5)
    args.seconds = args.seconds if args.seconds is not None else (0.5 if args.smoke else 3.0)
    if args.smoke and not args.peers:
        args.peers = ("gateway", "direct")
    if not 0 < args.seconds <= MAX_SECONDS or not 1 <= args.rounds <= MAX_ROUNDS:
        parser.error(f"--seconds must be above 0 and at most {MAX_SECONDS:.0f}, --rounds between 1 and {MAX_ROUNDS}")
    return args


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _checkout(text: str) -> tuple[str, Path]:
    name, separator, folder = text.partition("=")
    if not separator or not (Path(folder) / "gateway" / "__main__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text}: no checkout of the gateway there; write NAME=FOLDER")
    return name, Path(folder).absolute()


def _absolute_path(text: str) -> Path:
    return Path(text).absolute()


if __name__ == "__main__":
    sys.exit(main())
