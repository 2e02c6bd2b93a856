"""The manifest of a run: a file next to the output file, whose name ends in ``.manifest.json``.

``identity`` is written before the first row. A later run on the same output file must have the same ``identity``.
``results`` is computed from the output file, so it is correct after any number of killed runs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from gateway.cli.options import CommandError
from gateway.evaluate.analysis.answer_class import class_of, has_unchecked_call
from gateway.evaluate.analysis.rows import body_of, row_of
from gateway.evaluate.analysis.tool_check import ToolChecker
from gateway.evaluate.running.output import complete_lines, manifest_path
from metatemplate.version import VERSION

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
COUNTED = {"template": "templates", "dataset_prompt": "dataset_prompts", "policy": "policies", "target": "targets"}
"""Provenance field of a row → the key in the manifest under which the field's values are counted for each model."""
MOST_CHANGES = 10
"""The maximum number of changes that an error message lists."""


class Manifest:
    """The manifest of one output file."""

    def __init__(self, output: Path, identity: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """``identity``: facts that must be the same in all runs. ``facts``: facts that may change, like the address."""
        self.path = manifest_path(output)
        self._output = output
        self._identity = dict(identity)
        self._facts = dict(facts)
        self._runs: list[dict[str, Any]] = []

    def begin(self, rows_done: int, *, allow_changes: bool, shards: Sequence[Mapping[str, Any]] = ()) -> None:
        """Compare the identity with that of earlier runs, and write the manifest.

        Raises ``CommandError`` if the identities differ. With ``allow_changes``, the earlier rows are kept instead, and
        the changes are listed under ``runs``. ``shards``: the manifests of shards, in place of that of earlier runs.
        """
        earlier = shards or list(filter(None, [read_manifest(self.path)]))
        changes: list[str] = []
        if rows_done:
            self._runs = [run for one in earlier for run in one["runs"]]
            for one in earlier:
                changes += differences(one["identity"], self._identity, one["output"] if shards else "")
        if changes and not allow_changes:
            shown = "\n".join([f"  {change}" for change in changes[:MOST_CHANGES]])
            what, remedy = f"{self._output} has {rows_done} rows of a run with other settings", "choose another --out"
            if shards:
                what, remedy = f"the shards of {self._output} were sent with other settings", "give the same settings"
            raise CommandError(f"{what}:\n{shown}\n{remedy}, or keep these rows with --allow-changes")
        run = {"started": _now(), "ended": None, "rows_before": rows_done, "changes": changes, **self._facts}
        self._runs.append(run)
        self._write("running", None)

    def end(self, seconds: float, *, complete: bool) -> dict[str, Any]:
        """Write the manifest with the results of all runs, and return the results.

        ``seconds``: the duration of this run. ``complete``: whether every row has been sent.
        """
        results = summarise(complete_lines(self._output))
        run = self._runs[-1]
        run |= {"ended": _now(), "rows": results["rows"] - run["rows_before"], "seconds": round(seconds, 3)}
        self._write("complete" if complete else "incomplete", results)
        return results

    def _write(self, state: str, results: Mapping[str, Any] | None) -> None:
        """Replace the file in one step, so that a killed process leaves the old manifest or the new one."""
        value = {
            "gateway": VERSION,
            "state": state,
            "output": self._output.name,
            "identity": self._identity,
            "runs": self._runs,
            "results": results,
        }
        draft = self.path.with_name(f"{self.path.name}.partial")
        with draft.open("wb") as file:
            file.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)


def read_manifest(path: Path) -> dict[str, Any] | None:
    """Return the manifest; None if the file does not exist. Raises ``CommandError`` if it is no manifest."""
    try:
        value = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict) or not {"identity", "runs"} <= value.keys():
        raise CommandError(f"{path}: this file is not a manifest of `gateway run`; choose another --out")
    return value


def differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Yield one text for each value that differs between two JSON values: ``model: "a" → "b"``."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from differences(old.get(name), new.get(name), f"{place}.{name}" if place else name)
    elif old != new:
        yield f"{place}: {orjson.dumps(old).decode()} → {orjson.dumps(new).decode()}"


# ---------------------------------------------------------------- results


def summarise(lines: Iterator[bytes]) -> dict[str, Any]:
    """Return the results of a run from its output lines.

    These lines do not have the tools of the requests, so ``bad tool call`` counts only calls of a wrong form.
    """
    total, tokens, seconds = Counter[str](), Counter[str](), list[float]()
    by = {name: Counter[str]() for name in ("notices", "statuses", "errors", "finish_reasons", "classes")}
    models: dict[str, dict[str, Counter[str]]] = {}
    first_error, checker = "", ToolChecker()
    for line in lines:
        value = orjson.loads(line)
        provenance, body, row = value["gateway"], body_of(value), row_of(value)
        total["rows"] += 1
        total["failed" if row.error else "answered"] += 1
        total["attempts"] += provenance.get("attempts", 0)
        total["retries"] += provenance["retries"]
        total["unchecked_tool_calls"] += has_unchecked_call(row, checker)
        model = models.setdefault(row.model, {key: Counter() for key in COUNTED.values()})
        for name, key in COUNTED.items():
            model[key].update([provenance[name]] if name in provenance else [])
        by["classes"][class_of(row, checker)] += 1
        by["notices"].update(notice.partition(":")[0] for notice in provenance.get("notices", ()))
        by["statuses"].update([] if value["response"] is None else [str(value["response"]["status_code"])])
        if row.error:
            by["errors"][row.error] += 1
            message = (value["error"] or body.get("error") or {}).get("message", "")
            first_error = first_error or f"{row.custom_id}: {row.error}: {message}"
        else:
            seconds.append(provenance["seconds"])
            tokens.update({name: number for name, number in (body.get("usage") or {}).items() if type(number) is int})
            by["finish_reasons"].update(choice.get("finish_reason") or "none" for choice in body.get("choices", ()))
    counted = {name: total[name] for name in ("rows", "answered", "failed", "attempts", "retries")}
    return {
        **counted,
        "models": models,
        **{name: dict(counter.most_common()) for name, counter in by.items()},
        "unchecked_tool_calls": total["unchecked_tool_calls"],
        "first_error": first_error,
        "tokens": dict(tokens),
        "latency_seconds": quantiles(seconds),
    }


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return the ``QUANTILES`` of the values by the nearest rank. Without values the result is empty."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {name: ordered[round(share * last)] for name, share in QUANTILES.items()} if ordered else {}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
