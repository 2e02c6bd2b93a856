"""Tool calls are found in any slicing; all other text stays, unchanged."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from metatemplate.answers.tool_calls.format import Format, ParsedCall, Piece, ToolSchemas, UnparsedCall
from metatemplate.answers.tool_calls.registry import FORMATS
from metatemplate.answers.tool_calls.scanner import MAX_CALLS, MAX_REGION, Scanner
from metatemplate.values.answer_markers import ToolTokens
from tests.stream.slicing import sliced, slicings
from tests.support.growth import assert_linear

NAMES: ToolSchemas = {
    "add": {"properties": {"a": {"type": "integer"}, "s": {"type": "string"}, "o": {"type": "object"}}},
    "now": {},
    "get_weather": {},
}
TOKENS = {
    "lazyllm": ToolTokens("<|action_start|><|function|>", "<|args|>", "<|action_end|>"),
    "lazyllm lines": ToolTokens(),
    "lazyllm no args": ToolTokens("<|plugin|>", "", "<|end|>"),
    "lazyllm signs": ToolTokens("✿FUNCTION✿: ", "✿ARGS✿: ", "\n"),
}

Heard = tuple[str, tuple[tuple[str, str], ...], int]
"""(the text that goes out, the calls, how often text looked like a call)"""

ADD = ("add", '{"a": 1}')
CALL = '{"name": "add", "arguments": {"a": 1}}'
PARAMETERS = '{"name": "add", "parameters": {"a": 1}}'
H = f"<tool_call>\n{CALL}\n</tool_call>"
Q = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
G = "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"
K = '<|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>'
K_ALL = f"<|tool_calls_section_begin|>{K}{K}<|tool_calls_section_end|>"
D = '<｜DSML｜invoke name="add">\n<｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
M = '<minimax:tool_call>\n<invoke name="add">\n<parameter name="a">1</parameter>\n</invoke>\n</minimax:tool_call>'
C = '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}<|call|>'
L = '<|action_start|><|function|>add<|args|>{"a": 1}<|action_end|>'

CASES: dict[str, tuple[str, str, Heard]] = {  # name: (format, text, what is heard)
    "no call": ("hermes", "1 < 2, and <tool> is a word", ("1 < 2, and <tool> is a word", (), 0)),
    "nothing": ("hermes", "", ("", (), 0)),
    "blanks": ("hermes", " \n ", (" \n ", (), 0)),
    "one call": ("hermes", H, ("", (ADD,), 0)),
    "blanks around a call": ("hermes", f"\n\n{H}\n", ("", (ADD,), 0)),
    "words before": ("hermes", f"Let me see.\n{H}", ("Let me see.\n", (ADD,), 0)),
    "words after": ("hermes", f"{H}\nDone.", ("\nDone.", (ADD,), 0)),
    "two calls": ("hermes", f"{H}\n{H}", ("", (ADD, ADD), 0)),
    "a list in one marker": ("hermes", f"<tool_call>[{CALL}, {CALL}]</tool_call>", ("", (ADD, ADD), 0)),
    "no end marker": ("hermes", f"<tool_call>{CALL}", ("", (ADD,), 0)),
    "no end marker, then another": ("hermes", f"<tool_call>{CALL}\n{H}", ("", (ADD, ADD), 0)),
    "cut off": ("hermes", H[:30], (H[:30], (), 1)),
    "cut off in the marker": ("hermes", "x<tool_ca", ("x<tool_ca", (), 0)),
    "an end marker in a string": (
        "hermes",
        '<tool_call>{"name": "add", "arguments": {"s": "</tool_call>\\"}"}}</tool_call>',
        ("", (("add", '{"s": "</tool_call>\\"}"}'),), 0),
    ),
    "the bytes of the arguments": (
        "hermes",
        '<tool_call>{"arguments": {"x":1.50, "é": "\\u00e9"} , "name" : "add"}</tool_call>',
        ("", (("add", '{"x":1.50, "é": "\\u00e9"}'),), 0),
    ),
    "a tool nobody gave": (
        "hermes",
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        ('<tool_call>{"name": "rm", "arguments": {}}</tool_call>', (), 1),
    ),
    "arguments that are a list": (
        "hermes",
        '<tool_call>{"name": "add", "arguments": [1]}</tool_call>',
        ('<tool_call>{"name": "add", "arguments": [1]}</tool_call>', (), 1),
    ),
    "arguments that are a string": (
        "hermes",
        '<tool_call>{"name": "add", "arguments": "{}"}</tool_call>',
        ('<tool_call>{"name": "add", "arguments": "{}"}</tool_call>', (), 1),
    ),
    "a name twice": (
        "hermes",
        '<tool_call>{"name": "add", "name": "now", "arguments": {}}</tool_call>',
        ('<tool_call>{"name": "add", "name": "now", "arguments": {}}</tool_call>', (), 1),
    ),
    "no JSON behind the marker": ("hermes", "say <tool_call> twice", ("say <tool_call> twice", (), 1)),
    "a broken call before a good one": (
        "hermes",
        f'<tool_call>{{"name": add}}</tool_call>{H}',
        ('<tool_call>{"name": add}</tool_call>', (ADD,), 1),
    ),
    "a bracket too few before a good one": (
        "hermes",
        f'<tool_call>{{"name": "add", "arguments": {{"a": 1}}</tool_call>\n{H}',
        ('<tool_call>{"name": "add", "arguments": {"a": 1}</tool_call>\n', (ADD,), 1),
    ),
    "a quote too few before a good one": (
        "hermes",
        f'<tool_call>{{"name": "add, "arguments": {{}}}}</tool_call>\n{H}',
        ('<tool_call>{"name": "add, "arguments": {}}</tool_call>\n', (ADD,), 1),
    ),
    "begun twice": ("hermes", f'<tool_call>{{"name": {H}', ('<tool_call>{"name": ', (ADD,), 1)),
    "a call in the arguments of what is none": (
        "hermes",
        f"<tool_call>{{'name': \"{H}\"}}</tool_call>",
        ("<tool_call>{'name': \"\"}</tool_call>", (ADD,), 1),
    ),
    "half a character": (
        "hermes",
        '<tool_call>{"name": "add", "arguments": {"a": ["\\ud800"]}}</tool_call>',
        ('<tool_call>{"name": "add", "arguments": {"a": ["\\ud800"]}}</tool_call>', (), 1),
    ),
    "a number larger than a float": (
        "hermes",
        '<tool_call>{"name": "add", "arguments": {"a": 1e999}}</tool_call>',
        ('<tool_call>{"name": "add", "arguments": {"a": 1e999}}</tool_call>', (), 1),
    ),
    "mistral: half a character": (
        "mistral",
        '[TOOL_CALLS]add{"a": "\\ud800"}',
        ('[TOOL_CALLS]add{"a": "\\ud800"}', (), 1),
    ),
    "lazyllm: a number larger than a float": (
        "lazyllm",
        '<|action_start|><|function|>add<|args|>{"a": 1e999}<|action_end|>',
        ('<|action_start|><|function|>add<|args|>{"a": 1e999}<|action_end|>', (), 1),
    ),
    "NaN": (
        "hermes",
        '<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>',
        ('<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>', (), 1),
    ),
    "an id of the model's own": (
        "hermes",
        '<tool_call>{"id": "x", "type": "function", "name": "now", "arguments": {}}</tool_call>',
        ("", (("now", "{}"),), 0),
    ),
    "json: a call": ("json", f" {CALL}\n", ("", (ADD,), 0)),
    "json: a list": ("json", f"[{CALL}, {CALL}]", ("", (ADD, ADD), 0)),
    "json: one after the other": ("json", f"{CALL}\n{CALL}", ("", (ADD, ADD), 0)),
    "json: an empty list": ("json", "[]", ("[]", (), 0)),
    "json: words first": ("json", f"So: {CALL}", (f"So: {CALL}", (), 0)),
    "json: words after": ("json", f"{CALL} there", (" there", (ADD,), 0)),
    "json: an answer in JSON": ("json", '{"sum": 3}', ('{"sum": 3}', (), 0)),
    "json: a call of nobody": ("json", '{"name": "Bob", "age": 3}', ('{"name": "Bob", "age": 3}', (), 1)),
    "json: a list of words": ("json", f"[see {CALL}]", (f"[see {CALL}]", (), 0)),
    "json: cut off": ("json", CALL[:20], (CALL[:20], (), 1)),
    "llama: a call": ("llama3_json", PARAMETERS, ("", (ADD,), 0)),
    "llama: arguments": ("llama3_json", CALL, ("", (ADD,), 0)),
    "llama: the marker": ("llama3_json", f"<|python_tag|>{PARAMETERS}", ("", (ADD,), 0)),
    "llama: two": ("llama3_json", f"{PARAMETERS}; {PARAMETERS}", ("", (ADD, ADD), 0)),
    "llama: two separators": ("llama3_json", f"{PARAMETERS};; {PARAMETERS}", (f";; {PARAMETERS}", (ADD,), 0)),
    "llama: a separator and words": ("llama3_json", f"{PARAMETERS}; so", ("; so", (ADD,), 0)),
    "llama: a separator at the end": ("llama3_json", f"{PARAMETERS};", (";", (ADD,), 0)),
    "llama: a separator and the marker": ("llama3_json", f"{PARAMETERS};<|python_tag|>{CALL}", ("", (ADD, ADD), 0)),
    "llama: a separator and code": (
        "llama3_json",
        f"{PARAMETERS}; <|python_tag|>print(1)",
        ("; <|python_tag|>print(1)", (ADD,), 1),
    ),
    "llama: a bracket, then the marker": ("llama3_json", f"[see {{<|python_tag|>{CALL}", ("[see {", (ADD,), 0)),
    "llama: code": ("llama3_json", "<|python_tag|>print(1)", ("<|python_tag|>print(1)", (), 1)),
    "python: a call": ("pythonic", "[add(a=1)]", ("", (ADD,), 0)),
    "python: two, with all kinds": (
        "pythonic",
        "[now(), add(a=-1, b=[1.5, 'x)]'], c={'k': None}, d=true, e=\"\\n\")]",
        ("", (("now", "{}"), ("add", '{"a": -1, "b": [1.5, "x)]"], "c": {"k": null}, "d": true, "e": "\\n"}')), 0),
    ),
    "python: a note": ("pythonic", "[Note: it's late] so", ("[Note: it's late] so", (), 0)),
    "python: a long name": (
        "pythonic",
        "[a" + ".b" * 120 + "()]",
        ("[a" + ".b" * 120 + "()]", (), 1),
    ),
    "python: blanks": ("pythonic", "[ add (\n a = 1 ) ]", ("", (ADD,), 0)),
    "python: by position": ("pythonic", "[add(1)]", ("[add(1)]", (), 1)),
    "python: an expression": ("pythonic", "[add(a=1+1)]", ("[add(a=1+1)]", (), 1)),
    "python: a list": ("pythonic", "[1, 2]", ("[1, 2]", (), 0)),
    "python: words first": ("pythonic", "see [add(a=1)]", ("see [add(a=1)]", (), 0)),
    "python: cut off": ("pythonic", "[add(a=1", ("[add(a=1", (), 1)),
    "python: infinity": ("pythonic", "[add(a=1e999)]", ("[add(a=1e999)]", (), 1)),
    "python: half a character": ("pythonic", "[add(a='\\ud800')]", ("[add(a='\\ud800')]", (), 1)),
    "mistral: a list": ("mistral", f"[TOOL_CALLS] [{CALL}, {CALL}]", ("", (ADD, ADD), 0)),
    "mistral: words first": ("mistral", f"Well.[TOOL_CALLS][{CALL}]", ("Well.", (ADD,), 0)),
    "mistral: a name": ("mistral", '[TOOL_CALLS]add{"a": 1}', ("", (ADD,), 0)),
    "mistral: args": ("mistral", '[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]now[ARGS]{}', ("", (ADD, ("now", "{}")), 0)),
    "mistral: an id": ("mistral", '[TOOL_CALLS]add[CALL_ID]abc123XYZ[ARGS]{"a": 1}', ("", (ADD,), 0)),
    "mistral: the marker in words": (
        "mistral",
        'I use [TOOL_CALLS]. [TOOL_CALLS]add{"a": 1}',
        ("I use [TOOL_CALLS]. ", (ADD,), 1),
    ),
    "mistral: no value": ("mistral", "[TOOL_CALLS]add", ("[TOOL_CALLS]add", (), 1)),
    "mistral: words": ("mistral", "[TOOL_CALLS] " + "no " * 100, ("[TOOL_CALLS] " + "no " * 100, (), 1)),
    "qwen: a call": ("qwen3_coder", f"So.\n\n{Q}\n{Q}", ("So.\n\n", (ADD, ADD), 0)),
    "qwen: no outer tags": ("qwen3_coder", "<function=now>\n</function>", ("", (("now", "{}"),), 0)),
    "qwen: a string ends where the call may end": (
        "qwen3_coder",
        "<function=add><parameter=s>\n\n 12 </parameter> </function>\n\n</parameter></function>",
        ("\n\n</parameter></function>", (("add", '{"s": "\\n 12 "}'),), 0),
    ),
    "qwen: a string with the tags of the format": (
        "qwen3_coder",
        "<function=add><parameter=s>\n</function><parameter=x></parameter>.\n</parameter></function>",
        ("", (("add", '{"s": "</function><parameter=x></parameter>."}'),), 0),
    ),
    "qwen: values of Python": (
        "qwen3_coder",
        "<function=add><parameter=o>None</parameter><parameter=a>True</parameter></function>",
        ("", (("add", '{"o": null, "a": true}'),), 0),
    ),
    "qwen: an argument twice": (
        "qwen3_coder",
        "<function=add><parameter=a>1</parameter><parameter=a>1</parameter></function>",
        ("<function=add><parameter=a>1</parameter><parameter=a>1</parameter></function>", (), 1),
    ),
    "qwen: a call of Hermes": ("qwen3_coder", H, (H, (), 0)),
    "qwen: cut off": ("qwen3_coder", Q[:50], (Q[:50], (), 1)),
    "qwen: cut off before a good one": ("qwen3_coder", f"{Q[:30]}{Q}", (Q[:30], (ADD,), 1)),
    "qwen: a number cut off before a good one": ("qwen3_coder", f"{Q[:38]}{Q}", (Q[:38], (ADD,), 1)),
    "minimax: a key cut off before a good one": (
        "minimax_m2",
        f'<invoke name="now">\n<parameter name="a\n{M}',
        ('<invoke name="now">\n<parameter name="a\n', (ADD,), 1),
    ),
    "gemma: cut off before a good one": (
        "functiongemma",
        "<start_function_call>call:now{a<start_function_call>call:add{a:1}<end_function_call>",
        ("<start_function_call>call:now{a", (ADD,), 1),
    ),
    "glm: a call": ("glm45", f"{G}\n{G}", ("", (ADD, ADD), 0)),
    "glm: no arguments": ("glm45", "<tool_call>now</tool_call>", ("", (("now", "{}"),), 0)),
    "glm: a word in tags": ("glm45", "<tool_call>is a tag", ("<tool_call>is a tag", (), 1)),
    "kimi: calls": ("kimi_k2", f"So.{K_ALL}", ("So.", (ADD, ADD), 0)),
    "kimi: cut off behind the first": (
        "kimi_k2",
        f"<|tool_calls_section_begin|>{K}{K[:40]}",
        (K[:40], (ADD,), 1),
    ),
    "deepseek 3: a fence": (
        "deepseek_v3",
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{"a": 1}\n```'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ("", (ADD,), 0),
    ),
    "deepseek 3.1: a call": (
        "deepseek_v31",
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        ("", (ADD,), 0),
    ),
    "deepseek 3.2: a call": (
        "deepseek_v32",
        f"So.\n\n<｜DSML｜function_calls>\n{D}{D}</｜DSML｜function_calls>",
        ("So.\n\n", (ADD, ADD), 0),
    ),
    "deepseek 4: a string that looks like a number": (
        "deepseek_v4",
        "<｜DSML｜tool_calls>" + D.replace('"false"', '"true"') + "</｜DSML｜tool_calls>",
        ("", (("add", '{"a": "1"}'),), 0),
    ),
    "minimax: a call": ("minimax_m2", M, ("", (ADD,), 0)),
    "nemotron: a list": ("nemotron_json", f"<TOOLCALL>[{CALL}, {CALL}]</TOOLCALL>", ("", (ADD, ADD), 0)),
    "gemma: a call": (
        "gemma4",
        '<|tool_call>call:add{a:1,s:<|"|>}: "x"\n<|"|>,o:{k:[true,None]}}<tool_call|>',
        ("", (("add", '{"a": 1, "s": "}: \\"x\\"\\n", "o": {"k": [true, null]}}'),), 0),
    ),
    "gemma: quotes of JSON": (
        "gemma4",
        '<|tool_call>call:add{a:"k: None, \\"True\\""}<tool_call|>',
        ("", (("add", '{"a": "k: None, \\"True\\""}'),), 0),
    ),
    "gemma: a key twice": (
        "gemma4",
        "<|tool_call>call:add{a:1,a:2}<tool_call|>",
        ("<|tool_call>call:add{a:1,a:2}<tool_call|>", (), 1),
    ),
    "gemma: no strings": (
        "functiongemma",
        "<start_function_call>call:now{}<end_function_call>",
        ("", (("now", "{}"),), 0),
    ),
    "harmony: only text": ("harmony", "Hi <b>", ("Hi <b>", (), 0)),
    "harmony: the last channel": ("harmony", "<|channel|>final<|message|>Hi<|end|>", ("Hi", (), 0)),
    "harmony: a call": ("harmony", C, ("", (ADD,), 0)),
    "harmony: a preamble and calls": (
        "harmony",
        f"<|channel|>commentary<|message|>So.<|end|><|start|>assistant{C}<|start|>assistant{C}",
        ("So.", (ADD, ADD), 0),
    ),
    "harmony: the recipient first": (
        "harmony",
        ' to=functions.add<|channel|>commentary json<|message|>{"a": 1}',
        ("", (ADD,), 0),
    ),
    "harmony: the recipient first, without a blank": (
        "harmony",
        'to=functions.add<|channel|>commentary json<|message|>{"a": 1}',
        ("", (ADD,), 0),
    ),
    "harmony: a later thought": (
        "harmony",
        "<|channel|>final<|message|>Hi<|end|><|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>",
        ("Hi", (), 0),
    ),
    "harmony: another recipient": (
        "harmony",
        "<|channel|>commentary to=browser.search<|message|>{}<|call|>",
        ("<|channel|>commentary to=browser.search<|message|>{}<|call|>", (), 1),
    ),
    "harmony: cut off in the arguments": (
        "harmony",
        f" to=functions.add{C[:-12]}",
        (f" to=functions.add{C[:-12]}", (), 1),
    ),
    "harmony: a header without a text before a good one": (
        "harmony",
        f"<|channel|>commentary to=functions.now json{{}}<|call|><|start|>assistant{C}",
        ("<|channel|>commentary to=functions.now json{}<|call|>", (ADD,), 1),
    ),
    "harmony: a string cut off before a good one": (
        "harmony",
        f'<|channel|>commentary to=functions.now json<|message|>{{"t<|call|><|start|>assistant{C}',
        ('<|channel|>commentary to=functions.now json<|message|>{"t<|call|>', (ADD,), 1),
    ),
    "harmony: a long header": (
        "harmony",
        "<|channel|>commentary to=functions.add " + "x" * 300 + '<|message|>{"a": 1}<|call|>',
        ("<|channel|>commentary to=functions.add " + "x" * 300 + '<|message|>{"a": 1}<|call|>', (), 0),
    ),
    "harmony: cut off in a header": ("harmony", "<|channel|>comm", ("<|channel|>comm", (), 0)),
    "lazyllm: a call": ("lazyllm", L, ("", (ADD,), 0)),
    "lazyllm: two": ("lazyllm", f"So\n{L}{L}", ("So\n", (ADD, ADD), 0)),
    "lazyllm: no arguments": ("lazyllm", "<|action_start|><|function|> now\n<|action_end|>", ("", (("now", "{}"),), 0)),
    "lazyllm: JSON5": (
        "lazyllm",
        "<|action_start|><|function|>add\n<|args|>{'a': 1, b: true,}\n<|action_end|>",
        ("", (("add", '{"a": 1, "b": true}'),), 0),
    ),
    "lazyllm: in a string": (
        "lazyllm",
        '<|action_start|><|function|>add<|args|>"{\\"a\\": 1}"<|action_end|>',
        ("", (ADD,), 0),
    ),
    "lazyllm: signs before the name": ("lazyllm signs", "✿FUNCTION✿: \nnow\nok", ("ok", (("now", "{}"),), 0)),
    "lazyllm: no arguments, then what may begin some": (
        "lazyllm",
        "<|action_start|><|function|>now<|action_end|><",
        ("<", (("now", "{}"),), 0),
    ),
    "lazyllm: begun in the arguments": (
        "lazyllm",
        f"<|action_start|><|function|>now<|args|> {L}",
        ("<|action_start|><|function|>now<|args|> ", (ADD,), 1),
    ),
    "lazyllm: an object in a line of prose": (
        "lazyllm lines",
        f"Write\n{PARAMETERS} for that.",
        (f"Write\n{PARAMETERS} for that.", (), 1),
    ),
    "lazyllm: an object, blanks and a line": ("lazyllm lines", f"{PARAMETERS} \t\nok", ("\nok", (ADD,), 0)),
    "lazyllm: a name cut off": (
        "lazyllm",
        "<|action_start|><|function|>now",
        ("<|action_start|><|function|>now", (), 1),
    ),
    "lazyllm: begun twice": (
        "lazyllm",
        f"<|action_start|><|function|>ad{L}",
        ("<|action_start|><|function|>ad", (ADD,), 1),
    ),
    "lazyllm: an object too few before a good one": (
        "lazyllm",
        f"<|action_start|><|function|>add<|args|>{{'a': {{}}<|action_end|>{L}",
        ("<|action_start|><|function|>add<|args|>{'a': {}<|action_end|>", (ADD,), 1),
    ),
    "lazyllm: a note on a line": (
        "lazyllm lines",
        "So\n[It's late]\nadd\n{}",
        ("So\n[It's late]", (("add", "{}"),), 0),
    ),
    "lazyllm: unreadable arguments": (
        "lazyllm",
        "<|action_start|><|function|>add<|args|>one<|action_end|>",
        ("<|action_start|><|function|>add<|args|>one<|action_end|>", (), 1),
    ),
    "lazyllm: a name on a line": ("lazyllm lines", 'add\n{"a": 1}', ("", (ADD,), 0)),
    "lazyllm: a name on a later line": ("lazyllm lines", 'I add.\nadd\n{"a": 1}\n', ("I add.", (ADD,), 0)),
    "lazyllm: a name within a line": ("lazyllm lines", 'I add\n{"a": 1}', ('I add\n{"a": 1}', (), 0)),
    "lazyllm: an object on a line": ("lazyllm lines", f"So:\n{PARAMETERS}", ("So:", (ADD,), 0)),
    "lazyllm: only an object": ("lazyllm lines", CALL, ("", (ADD,), 0)),
    "lazyllm: an object without arguments": ("lazyllm lines", '{"name": "now"}', ("", (("now", "{}"),), 0)),
    "lazyllm: an object with more": ("lazyllm lines", '{"name": "now", "x": 1}', ('{"name": "now", "x": 1}', (), 1)),
    "lazyllm: only text": ("lazyllm lines", "\nplain\ntext", ("\nplain\ntext", (), 0)),
    "lazyllm: no args token": ("lazyllm no args", f"<|plugin|>{PARAMETERS}<|end|>", ("", (ADD,), 0)),
    "lazyllm: signs": ("lazyllm signs", '✿FUNCTION✿: add\n✿ARGS✿: {"a":\n 1}\nok', ("ok", (("add", '{"a":\n 1}'),), 0)),
    "lazyllm: signs without arguments": ("lazyllm signs", "✿FUNCTION✿: now\nok", ("ok", (("now", "{}"),), 0)),
    "lazyllm: two without arguments": (
        "lazyllm",
        "<|action_start|><|function|>now<|action_end|>\n<|action_start|><|function|>now<|action_end|>\n",
        ("", (("now", "{}"),) * 2, 0),
    ),
}


def format_of(name: str) -> Format:
    return FORMATS[name.partition(" ")[0]](TOKENS.get(name, ToolTokens()), NAMES)


def heard(name: str, pieces: Iterable[str]) -> Heard:
    scanner = Scanner(format_of(name), NAMES)
    found: list[Piece] = []
    for piece in pieces:
        found += scanner.feed(piece)
    found += scanner.end()
    text = "".join(p if isinstance(p, str) else p.text for p in found if isinstance(p, str | UnparsedCall))
    calls = tuple((p.name, p.arguments) for p in found if isinstance(p, ParsedCall))
    assert "" not in found
    return text, calls, sum(isinstance(p, UnparsedCall) for p in found)


@pytest.mark.parametrize("case", CASES)
def test_calls_are_found_and_all_else_is_text(case: str) -> None:
    name, text, expected = CASES[case]
    assert heard(name, [text]) == expected
    for _, arguments in expected[1]:
        assert isinstance(json.loads(arguments), dict)


@pytest.mark.parametrize("case", CASES)
def test_every_slicing_finds_the_same(case: str) -> None:
    name, text, expected = CASES[case]
    for slicing in slicings(text, 2 if len(text) < 40 else 1):
        assert heard(name, slicing) == expected, slicing


EVERY = [*[name for name in FORMATS if name != "lazyllm"], *TOKENS]
WORDS = [
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<|action_start|><|function|>",
    "<|args|>", "<|action_end|>", "<|plugin|>", "<|end|>", "✿FUNCTION✿: ", "✿ARGS✿: ", "\n", " ", ";", "<", "[", "]",
    "<function=add>", "<parameter=a>", "</parameter>", "</function>", Q, G, "<arg_key>", "</arg_value>", K, C,
    "<|channel|>", "<|message|>", "<|end|>", "<|tool_call>call:", '<|"|>', "<tool_call|>", D,
    "{", "}", '"', "'", "\\", "(", ")", "a=1", ",", "add", "now", "x", CALL, PARAMETERS, H, L, "add(a=1)", '{"a": 1}',
    f"{PARAMETERS};<|python_tag|>", f"{CALL}; ", "\xa0", "[add(", "\t",
]  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=9), st.data())
def test_garbage_is_kept_and_slicing_changes_nothing(name: str, words: list[str], data: st.DataObject) -> None:
    text = "".join(words)
    whole = heard(name, [text])
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=6).map(sorted))
    assert heard(name, sliced(text, places)) == whole
    assert heard(name, text) == whole
    said, calls, _ = whole
    assert is_part(said, text)
    if not calls and name != "harmony":
        assert said == text


def is_part(part: str, text: str) -> bool:
    """Is ``part`` what is left of ``text`` when something is taken out?"""
    rest = iter(text)
    return all(character in rest for character in part)


JSON_OBJECTS = st.dictionaries(
    st.text(max_size=4),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=6),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)
WRITERS = {  # format: how a well-behaved model writes calls
    "hermes": lambda calls: "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>' for name, arguments in calls
    ),
    "json": lambda calls: (
        "[" + ", ".join(f'{{"name": "{name}", "arguments": {arguments}}}' for name, arguments in calls) + "]"
    ),
    "llama3_json": lambda calls: "; ".join(
        f'{{"name": "{name}", "parameters": {arguments}}}' for name, arguments in calls
    ),
    "mistral": lambda calls: "".join(f"[TOOL_CALLS]{name}[ARGS]{arguments}" for name, arguments in calls),
    "lazyllm": lambda calls: "".join(
        f"<|action_start|><|function|>{name}\n<|args|>{arguments}\n<|action_end|>" for name, arguments in calls
    ),
    "lazyllm lines": lambda calls: "\n".join(f"{name}\n{arguments}" for name, arguments in calls),
}


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(NAMES)), JSON_OBJECTS), min_size=1, max_size=3),
    st.booleans(),
    st.data(),
)
def test_what_was_written_is_read(
    name: str, calls: list[tuple[str, Any]], ascii_only: bool, data: st.DataObject
) -> None:
    written = tuple((called, json.dumps(arguments, ensure_ascii=ascii_only)) for called, arguments in calls)
    text = WRITERS[name](written)
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=8).map(sorted))
    assert heard(name, sliced(text, places)) == ("", written, 0)


NAMES_OF_ARGUMENTS = st.from_regex(r"[a-z_]{1,6}", fullmatch=True).filter(
    lambda name: name not in {"as", "is", "in", "if", "or", "and", "not", "for", "def", "del", "try", "from", "pass",
                              "with", "elif", "else", "class", "break", "raise", "while", "yield", "return", "lambda",
                              "import", "except", "assert", "global", "async", "await"}
)  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(NAMES_OF_ARGUMENTS, st.integers() | st.text(max_size=6) | st.booleans() | st.none(), max_size=4))
def test_what_was_written_in_python_is_read(arguments: dict[str, Any]) -> None:
    text = "[add(" + ", ".join(f"{key}={value!r}" for key, value in arguments.items()) + ")]"
    said, calls, failed = heard("pythonic", text)
    assert (said, failed, len(calls)) == ("", 0, 1)
    assert json.loads(calls[0][1]) == arguments


def test_deep_nesting_is_text() -> None:
    deep = '<tool_call>{"name": "add", "arguments": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}</tool_call>"
    assert heard("hermes", [deep]) == (deep, (), 1)
    deep = "[add(a=" + "[" * 100_000 + "]" * 100_000 + ")]"
    assert heard("pythonic", [deep]) == (deep, (), 1)
    deep = "[add(a=" + "-" * 200_000 + "1)]"
    assert heard("pythonic", [deep]) == (deep, (), 1)


LONG: dict[str, tuple[str, str]] = {  # name: (format, what is said again and again)
    "markers": ("hermes", "<tool_call>x"),
    "objects that are no calls": ("hermes", "<tool_call>{}"),
    "calls without an end": ("hermes", f"<tool_call>{CALL}"),
    "brackets that never close": ("hermes", "<tool_call>[{"),
    "strings that never close": ("hermes", '<tool_call>{"'),
    "lines": ("lazyllm lines", "\n{}"),
    "three kinds of quotes": ("lazyllm", "<|action_start|><|function|>add<|args|>{'a\"': '\""),
    "names without arguments": ("lazyllm", "<|action_start|><|function|>now<|action_end|>"),
    "headers": ("mistral", "[TOOL_CALLS]x"),
    "tags": ("llama3_json", "<|python_tag|>x"),
    "good calls": ("json", CALL),
    "python": ("pythonic", "[add(a="),
    "blanks": ("hermes", " "),
    "parameters that never end": ("qwen3_coder", "<function=add><parameter=s>"),
    "values that never end": ("qwen3_coder", "<function=add><parameter=s></parameter>"),
    "calls in numbers": ("qwen3_coder", f"<function=add><parameter=a>{Q}"),
    "pairs": ("glm45", "<tool_call>add<arg_key>s</arg_key><arg_value></arg_value>x"),
    "sections": ("kimi_k2", "<|tool_calls_section_begin|>"),
    "values in DSML": ("deepseek_v32", D[:-10]),
    "quotes that never close": ("gemma4", '<|tool_call>call:add{a:<|"|>'),
    "quoted calls that never close": ("gemma4", "<|tool_call>call:add{a:1"),
    "starts": ("harmony", "<|start|>assistant"),
    "headers of channels": ("harmony", "<|channel|>commentary to=functions.add"),
    "thoughts": ("harmony", "<|channel|>analysis<|message|>"),
}


@pytest.mark.parametrize("case", LONG)
@pytest.mark.parametrize("step", [1, 1_000_000], ids=["piece by piece", "at once"])
def test_the_work_is_linear_in_the_text(case: str, step: int) -> None:
    name, again = LONG[case]

    def run(size: int) -> None:
        text = again * (size // len(again))
        said, calls, _ = heard(name, [text[at : at + step] for at in range(0, len(text), step)])
        assert calls or said == text or name == "harmony"

    assert_linear(run, 20_000 if step > 1 else 10_000)


ONE: dict[str, tuple[str, str, str, str]] = {  # name: (format, begin, what is said again and again, end)
    "a key that never ends": ("qwen3_coder", "<function=add><parameter=a", ">", ""),
    "a key in quotes that never ends": ("minimax_m2", '<invoke name="add"><parameter name="a', '">', ""),
    "a type in DSML that never comes": ("deepseek_v32", D[: D.index('a"') + 1], '" ', ""),
    "a value with many ends": ("glm45", "<tool_call>add<arg_key>s</arg_key><arg_value>", "</arg_value> ", ""),
    "blanks behind a value": ("qwen3_coder", "<function=add><parameter=s></parameter>", " ", ""),
    "a bare word": ("gemma4", "<|tool_call>call:add{", "a", "}<tool_call|>"),
    "bare words": ("gemma4", "<|tool_call>call:add{", "a ", "}<tool_call|>"),
    "blanks behind a bare word": ("gemma4", "<|tool_call>call:add{a", " ", "}<tool_call|>"),
    "a header": ("harmony", "<|channel|>", "a", ""),
    "an id": ("kimi_k2", "<|tool_call_begin|>functions.add:", "0", ""),
    "a name": ("mistral", "[TOOL_CALLS]", "a", "{}"),
}


@pytest.mark.parametrize("case", ONE)
@pytest.mark.parametrize("step", [1, 1_000_000], ids=["piece by piece", "at once"])
def test_the_work_is_linear_in_one_region(case: str, step: int) -> None:
    name, begin, again, end = ONE[case]

    def run(size: int) -> None:
        text = begin + again * (size // len(again)) + end
        assert heard(name, [text[at : at + step] for at in range(0, len(text), step)])[0] == text

    assert_linear(run, 8_000 if step > 1 else 4_000)


@pytest.mark.parametrize("name", TOKENS)
def test_blanks_one_by_one_are_linear_in_every_place(name: str) -> None:
    tokens = TOKENS[name]
    for lead in (
        "",
        tokens.start,
        tokens.start + "add",
        tokens.start + "add" + tokens.args,
        L.removesuffix("<"),
        H,
        "\n{}",
    ):
        assert_linear(lambda size, lead=lead: heard(name, lead + " " * size), 5_000)  # type: ignore[misc]


HOSTILE = (
    "[a" + ".b" * 1500 + "()]",
    "[add(a=" + "(" * 5000 + ")]",
    "[add(a=" + "9" * 9000 + ")]",
    "[add(a=0x" + "f" * 9000 + ")]",
    "[add(a=1j)]",
    "[add(a=b'x')]",
    "[add(**a)]",
    "[add(a=1, a=2)]",
    "[add(a='\x00')]",
    "[add(a='\ud800')]",
    '[add(a="\\N{x}")]',
    "[add()" + ", add()" * 5000 + "]",
    "[" + "a" * 5000 + "()]",
    "[add(a=" + "-" * 5000 + "1)]",
    "[add(a={1: 2})]",
    "[add(a={**b})]",
    '{"name": "add", "arguments": ' + '{"a":' * 5000 + "1" + "}" * 5000 + "}",
    '{"name": "add", "arguments": {"a": ' + "9" * 9000 + "}}",
    '{"name": "add", "arguments": {"a": "\ud800"}}',
    '{"name": 1, "arguments": {}}',
    "{'name': 'add', 'arguments': \"{'a': 1e999}\"}",
    "[" * 9000,
    "{" * 9000,
    '{"a":' * 9000,
    "\x00",
    "{1: 2}",
    "[[]]",
    "{'a': " + "[" * 900 + "]" * 900 + "}",
)


@pytest.mark.parametrize("name", EVERY)
def test_nothing_a_model_writes_is_an_error(name: str) -> None:
    tokens = TOKENS.get(name, ToolTokens())
    leads = {
        "",
        "<tool_call>",
        "<function=add>",
        "<tool_call>add<arg_key>a</arg_key><arg_value>",
        C[:-9],
        "[TOOL_CALLS]",
        "[TOOL_CALLS]add",
        "<|python_tag|>",
        tokens.start,
        "\nadd\n",
    }
    for text in HOSTILE:
        for lead in (*leads, tokens.start + "add" + tokens.args):
            said, calls, _ = heard(name, [lead + text + tokens.end])
            assert calls or said == lead + text + tokens.end
            assert all(isinstance(json.loads(arguments), dict) for _, arguments in calls)


MANY: dict[str, tuple[str, Callable[[int], str]]] = {  # name: (format, so many calls)
    "one after the other": ("json", lambda number: CALL * number),
    "a list": ("json", lambda number: "[" + ", ".join([CALL] * number) + "]"),
    "python": ("pythonic", lambda number: "[" + ", ".join(["add(a=1)"] * number) + "]"),
    "mistral": ("mistral", lambda number: "[TOOL_CALLS]" + "[" + ", ".join([CALL] * number) + "]"),
    "lazyllm": ("lazyllm lines", lambda number: "[" + ", ".join(["{'name': 'now'}"] * number) + "]"),
}


@pytest.mark.parametrize("case", MANY)
def test_an_answer_holds_so_many_calls(case: str) -> None:
    name, write = MANY[case]
    assert len(heard(name, [write(MAX_CALLS)])[1]) == MAX_CALLS
    said, calls, failed = heard(name, [write(MAX_CALLS + 1)])
    assert (len(calls), failed) in ((0, 1), (MAX_CALLS, 1))
    assert said == (CALL if calls else write(MAX_CALLS + 1))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pythonic", "[add(a=[" + "1," * 120_000 + "])]"),
        ("lazyllm", "<|action_start|><|function|>add<|args|>{'a': [" + "1," * 120_000 + "]}<|action_end|>"),
        ("pythonic", "[" + "add(a=1)," * 40_000 + "]"),
        ("mistral", "[TOOL_CALLS]add{" + ",".join(f'"k{at}": 1' for at in range(100_000)) + "}"),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": [' + "1," * 4_000_000 + "1]}}</tool_call>"),
        ("json", "{" + ",".join(f'"k{at}": 1' for at in range(100_000)) + "}"),
    ],
    ids=["a list in Python", "JSON5", "calls in Python", "many arguments", "eight megabytes", "an object"],
)
def test_one_region_does_not_take_long(name: str, text: str) -> None:
    begun = time.process_time()
    said, calls, _ = heard(name, [text])
    assert time.process_time() - begun < 5
    assert calls or said == text


def test_text_waits_only_while_it_may_become_a_call() -> None:
    scanner = Scanner(format_of("hermes"), NAMES)
    assert scanner.feed("a <") == ["a "]
    assert scanner.feed("b") == ["<b"]
    assert scanner.feed(" <tool_call>\n") == [" "]
    assert scanner.feed("x") == [UnparsedCall("<tool_call>"), "\nx"]


OPEN = {  # what begins a region that never ends, and what goes on in it
    "hermes": ('<tool_call>{"name": "', "a"),
    "json": ('{"name": "', "a"),
    "llama3_json": ('<|python_tag|>{"name": "', "a"),
    "mistral": ('[TOOL_CALLS][{"name": "', "a"),
    "pythonic": ("[add(a='", "a"),
    "lazyllm": (L[: L.index("1")] + '"', "b"),
    "qwen3_coder": ("<function=add><parameter=s>", "a"),
    "glm45": ("<tool_call>add<arg_key>s</arg_key><arg_value>", "a"),
    "gemma4": ('<|tool_call>call:add{s:<|"|>', "a"),
    "harmony": ("<|channel|>analysis<|message|>", "a"),
    "blanks before a call": ("", " "),
    "blanks behind a call": (CALL, "\n"),
}


@pytest.mark.parametrize("case", OPEN)
def test_no_more_is_held_than_can_become_a_call(case: str) -> None:
    lead, again = OPEN[case]
    name = "json" if case.startswith("blanks") else case
    scanner = Scanner(format_of(name), NAMES)
    said = 0
    for text in (lead, *[again * 10_000] * 300):
        found = scanner.feed(text)
        said += sum(len(piece) for piece in found if isinstance(piece, str))
        said += sum(len(piece.text) for piece in found if isinstance(piece, UnparsedCall))
        assert scanner.held <= MAX_REGION
    assert said >= 1_900_000


REST = {  # format: what the model writes after the beginning of a forced call of ``add``
    "hermes": '{"a": 1}}\n</tool_call>',
    "mistral": '{"a": 1}',
    "qwen3_coder": Q.partition("add>\n")[2],
    "glm45": G.partition("add\n")[2],
    "kimi_k2": K.partition("<|tool_call_argument_begin|>")[2],
    "deepseek_v31": '{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek_v32": D.partition('add">\n')[2] + "</｜DSML｜function_calls>",
    "minimax_m2": M.partition('add">\n')[2],
    "gemma4": "a:1}<tool_call|>",
    "harmony": '{"a": 1}<|call|>',
}


def test_a_call_that_begins_with_the_texts_of_the_page_is_read() -> None:
    page = (Path(__file__).parents[3] / "docs" / "tools.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\{begin: .*\})` \|$", page, re.MULTILINE))
    assert rows.keys() == REST.keys()
    for name, text in rows.items():
        force = yaml.safe_load(text.replace("\\|", "|"))
        assert heard(name, [force["begin"] + "add" + force["end"] + REST[name]]) == ("", (ADD,), 0), name
