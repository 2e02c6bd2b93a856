"""Every mistake a person can make in these files, and the line that tells them what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import load
from gateway.core.errors import ConfigError

DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

TEMPLATE = """\
kind: meta
round:
  - {role: HUMAN, begin: "Q: ", end: "\\n"}
  - {role: BOT, begin: "A: ", end: "\\n", generate: true}
"""


def gateway(*, head: str = "", template: str = "plain", more: str = "", target: str | None = None) -> dict[str, str]:
    """A ``gateway.yaml`` whose model stands where the cases expect it: ``models`` on line 1 without ``head``."""
    target = target if target is not None else 'speaks: completions, url: "http://127.0.0.1:8101/v1"'
    text = f"{head}models:\n  demo:\n    template: {template}\n{more}    targets:\n      - {{{target}}}\n"
    return {"gateway.yaml": text}


def policy(text: str) -> dict[str, str]:
    return {**gateway(more="    policy: mine\n"), "policies/mine.yaml": text}


def keys(text: str) -> dict[str, str]:
    return {**gateway(head="keys: {file: keys.yaml}\n"), "keys.yaml": text}


# name: (files, what is said)
MISTAKES: dict[str, tuple[dict[str, str], list[str]]] = {
    # ---------------------------------------------------------------- names that lead nowhere
    "a template that is not there": (
        gateway(template="plian"),
        ['gateway.yaml:3 models.demo.template: no template "plian" (did you mean "plain"?)'],
    ),
    "a folder of media that is not there": (
        policy("media:\n  file: pass\n  folders: [meta_templates, gone]\n"),
        ["policies/mine.yaml:3 media.folders[1]: no folder gone; the path is relative to the folder of gateway.yaml"],
    ),
    "media files without a folder": (
        policy("media: {file: inline}\n"),
        [
            "policies/mine.yaml:1 media.file: needs media.folders; name the folders whose files may be sent, such as "
            "folders: [/data/images]"
        ],
    ),
    "a policy that is not there": (
        gateway(more="    policy: evil\n"),
        ['gateway.yaml:4 models.demo.policy: no policy "evil" (did you mean "eval"?)'],
    ),
    "a template given as a path": (
        gateway(template="../secrets/plain"),
        [
            'gateway.yaml:3 models.demo.template: "../secrets/plain" is not a valid template name; give the name of '
            'a file in meta_templates/ without .yaml (only lower-case letters, digits, ".", "_" and "-"); '
            "similar: plain; gateway templates lists all templates with their models; gateway import FOLDER converts "
            "the chat template in a model's own folder"
        ],
    ),
    "a keys file that is not there": (
        gateway(head="keys: {file: clients.yaml}\n"),
        [
            "gateway.yaml:1 keys.file: cannot read clients.yaml (the file does not exist); "
            "make it with: gateway keys new NAME >> clients.yaml"
        ],
    ),
    "a tokenizer that is not there": (
        gateway(more="    tokenizer: tok/tokenizer.json\n"),
        [
            "gateway.yaml:4 models.demo.tokenizer: no file or folder tok/tokenizer.json; the path is relative "
            "to the folder of gateway.yaml, and the gateway downloads nothing"
        ],
    ),
    # ---------------------------------------------------------------- keys
    "a model without settings": (
        {"gateway.yaml": "models:\n  demo:\n"},
        [
            "gateway.yaml:2 models.demo.template: is missing. The name of a file in `meta_templates/`, or `chat`, "
            "which sends messages unchanged.",
            "gateway.yaml:2 models.demo.targets: has no targets; add at least one entry with the setting speaks",
        ],
    ),
    "a misspelled key": (
        gateway(target='speaks: completions, url: "http://127.0.0.1:1/v1", engin: vllm'),
        ['gateway.yaml:5 models.demo.targets[0].engin: unknown key (did you mean "engine"?)'],
    ),
    "a key as another tool calls it": (
        gateway(target='speaks: completions, base_url: "http://127.0.0.1:1/v1"'),
        [
            'gateway.yaml:5 models.demo.targets[0].base_url: unknown key (did you mean "url"?)',
            "gateway.yaml:5 models.demo.targets[0].url: is missing; a completions target needs it. "
            "The base address up to and including `/v1`.",
        ],
    ),
    "a policy that records without a file": (
        policy("record: full\n"),
        [
            "gateway.yaml:1 recordings.path: is missing, and policy mine records calls; name a file such as "
            "recordings.sqlite"
        ],
    ),
    "a cache in a folder that does not exist": (
        gateway(head="cache: {path: nowhere/answers.sqlite}\n"),
        ["gateway.yaml:1 cache.path: the folder of nowhere/answers.sqlite does not exist; create it"],
    ),
    "equal requests that wait for each other without a cache": (
        policy("cache: {mode: read_only, coalesce: true}\n"),
        ["policies/mine.yaml:1 cache.coalesce: has no effect without cache.mode: on; set both, or remove this one"],
    ),
    "an aggregator that may change the provider, under eval": (
        gateway(more="    policy: eval\n", template="chat", target="speaks: litellm, model: openrouter/a/b"),
        [
            "gateway.yaml:6 models.demo.targets[0].model: openrouter may change the provider from call to call; write "
            "options: {extra_body: {provider: {only: [PROVIDER], allow_fallbacks: false}}} at this target "
            "(policy eval, delivery.providers: pinned)"
        ],
    ),
    "a parameter in the place of a pin": (
        gateway(
            template="chat",
            target="speaks: litellm, model: openrouter/a/b, options: {extra_body: {temperature: 0}}",
        ),
        [
            "gateway.yaml:5 models.demo.targets[0].options: extra_body may contain only provider of this "
            "aggregator; set parameters of calls in the policy, under params"
        ],
    ),
    "patterns that cannot be meant": (
        gateway(head="redact: [emial]\n"),
        [
            'gateway.yaml:1 redact: "emial" is not a built-in pattern (did you mean "email"?); write a regular '
            "expression between slashes"
        ],
    ),
    "a shared cache in two places and without a server": (
        gateway(head="cache: {path: answers.sqlite, shared: true}\n"),
        [
            "gateway.yaml:1 cache.shared: cannot be combined with cache.path; keep one of the two",
            "gateway.yaml:1 cache.shared: needs a Redis server; write `store: {url: redis://HOST:6379/0}`",
        ],
    ),
    "a section that does not exist": (
        gateway(head="logging: {level: debug}\n"),
        ["gateway.yaml:1 logging: unknown key (known: cache, keys, models, recordings, redact, server, store)"],
    ),
    "a key given twice": (
        gateway(head="server:\n  port: 8000\n  port: 9000\n"),
        ["gateway.yaml:3 server.port: this key occurs twice, first on line 2; keep only one"],
    ),
    "a model given twice": (
        {"gateway.yaml": gateway()["gateway.yaml"] + "  demo: {}\n"},
        ["gateway.yaml:6 models.demo: this key occurs twice, first on line 2; keep only one"],
    ),
    "a model without a template": (
        {"gateway.yaml": 'models:\n  demo:\n    targets: [{speaks: completions, url: "http://127.0.0.1:1/v1"}]\n'},
        [
            "gateway.yaml:2 models.demo.template: is missing. "
            "The name of a file in `meta_templates/`, or `chat`, which sends messages unchanged."
        ],
    ),
    # ---------------------------------------------------------------- values
    "no models at all": (
        {"gateway.yaml": "server: {port: 8000}\n"},
        [
            "gateway.yaml:1 models: contains no model; add at least one, with a template and targets "
            "(gateway docs configuration)"
        ],
    ),
    "an empty file": (
        {"gateway.yaml": ""},
        [
            "gateway.yaml models: contains no model; add at least one, with a template and targets "
            "(gateway docs configuration)"
        ],
    ),
    "a list where a mapping belongs": (
        {"gateway.yaml": "- models\n"},
        [
            "gateway.yaml:1: expected a mapping with the settings server, models, keys, store, cache, recordings, "
            "redact, such as {server: …}",
        ],
    ),
    "one target without its dash": (
        {"gateway.yaml": "models:\n  demo:\n    template: plain\n    targets:\n      speaks: completions\n"},
        ['gateway.yaml:4 models.demo.targets: expected a list; put "- " before the entry'],
    ),
    "a model without targets": (
        {"gateway.yaml": "models:\n  demo:\n    template: plain\n    targets: []\n"},
        ["gateway.yaml:4 models.demo.targets: has no targets; add at least one entry with the setting speaks"],
    ),
    "a port out of range": (
        gateway(head="server: {port: 80000}\n"),
        ["gateway.yaml:1 server.port: expected a whole number from 0 to 65535, got the number 80000"],
    ),
    "a port in quotes": (
        gateway(head='server: {port: "8000"}\n'),
        ['gateway.yaml:1 server.port: expected a whole number from 0 to 65535, got the text "8000"'],
    ),
    "no workers": (
        gateway(head="server: {workers: 0}\n"),
        ["gateway.yaml:1 server.workers: expected a whole number from 1 to 64, or auto, got the number 0"],
    ),
    "a word of workers": (
        gateway(head="server: {workers: two}\n"),
        ['gateway.yaml:1 server.workers: expected a whole number from 1 to 64, or auto, got the text "two"'],
    ),
    "more workers than the limit": (
        gateway(head="server: {workers: 65}\n"),
        ["gateway.yaml:1 server.workers: expected a whole number from 1 to 64, or auto, got the number 65"],
    ),
    "a duration without a unit": (
        gateway(head="server: {drain: 25}\n"),
        ["gateway.yaml:1 server.drain: expected a duration such as 250ms, 2s, 10m or 1h, got the number 25"],
    ),
    "a size in the wrong unit": (
        gateway(head="server: {max_body: 4MB}\n"),
        [
            "gateway.yaml:1 server.max_body: expected a size such as 64KiB or 4MiB, or a number of bytes, "
            'got the text "4MB"'
        ],
    ),
    "a model id that looks like a number": (
        gateway(target='speaks: completions, url: "http://127.0.0.1:1/v1", model: 7'),
        ["gateway.yaml:5 models.demo.targets[0].model: expected text, got the number 7; put it in quotes"],
    ),
    "a yes that is no boolean": (
        gateway(head="server: {insecure_no_keys: yes}\n"),
        ['gateway.yaml:1 server.insecure_no_keys: expected true or false, got the text "yes"'],
    ),
    "an empty value": (
        gateway(head="server:\n  port:\n"),
        ["gateway.yaml:2 server.port: is empty; write a value, or remove the line"],
    ),
    "a model name with a blank": (
        {"gateway.yaml": gateway()["gateway.yaml"].replace("demo", '"my model"')},
        [
            "gateway.yaml:2 models.my model: is not a valid model name; use 1 to 128 ASCII letters, digits and "
            "signs, without spaces"
        ],
    ),
    "a model name with a line break": (
        {"gateway.yaml": gateway()["gateway.yaml"].replace("demo", '"my\\nmodel"')},
        [
            "gateway.yaml:2 models.my\\nmodel: is not a valid model name; use 1 to 128 ASCII letters, digits and "
            "signs, without spaces"
        ],
    ),
    "a model name that ends in a slash": (
        {"gateway.yaml": gateway()["gateway.yaml"].replace("demo", "org/")},
        ["gateway.yaml:2 models.org/: is not a valid model name; write a name before and after each slash"],
    ),
    "an unknown engine": (
        gateway(target='speaks: completions, url: "http://127.0.0.1:1/v1", engine: vlm'),
        [
            'gateway.yaml:5 models.demo.targets[0].engine: the text "vlm" is not an accepted value '
            '(did you mean "vllm"?)'
        ],
    ),
    "an unknown way to speak": (
        gateway(target='speaks: completion, url: "http://127.0.0.1:1/v1"'),
        [
            'gateway.yaml:5 models.demo.targets[0].speaks: the text "completion" is not an accepted value '
            '(did you mean "completions"?)'
        ],
    ),
    # ---------------------------------------------------------------- addresses
    "an address without http": (
        gateway(target='speaks: completions, url: "127.0.0.1:8101/v1"'),
        [
            'gateway.yaml:5 models.demo.targets[0].url: expected an address with http:// or https://, such as "http://127.0.0.1:8101/v1"'
        ],
    ),
    "an address with a password": (
        gateway(target='speaks: completions, url: "http://me:hunter2@127.0.0.1:8101/v1"'),
        [
            "gateway.yaml:5 models.demo.targets[0].url: contains a user name or password; use the setting key "
            '("env:NAME") instead'
        ],
    ),
    "an address with a query": (
        gateway(target='speaks: completions, url: "http://127.0.0.1:8101/v1?key=hunter2"'),
        [
            "gateway.yaml:5 models.demo.targets[0].url: contains a query or fragment; the address must end with the "
            "path, such as /v1"
        ],
    ),
    "the address of one endpoint": (
        gateway(target='speaks: completions, url: "http://127.0.0.1:8101/v1/chat/completions"'),
        [
            "gateway.yaml:5 models.demo.targets[0].url: must be the base address; remove /chat/completions, because "
            "the gateway adds it"
        ],
    ),
    "an address with a broken port": (
        gateway(target='speaks: completions, url: "http://127.0.0.1:81o1/v1"'),
        ["gateway.yaml:5 models.demo.targets[0].url: is not a valid address; check the brackets and the port"],
    ),
    "a field that cannot be left out": (
        gateway(more="    omit: [messages]\n"),
        ['gateway.yaml:4 models.demo.omit: "messages" cannot be omitted; list only parameters such as temperature'],
    ),
    # ---------------------------------------------------------------- what does not go together
    "a target without an address": (
        gateway(target="speaks: completions"),
        [
            "gateway.yaml:5 models.demo.targets[0].url: is missing; a completions target needs it. "
            "The base address up to and including `/v1`."
        ],
    ),
    "an embedded model with an address": (
        gateway(target='speaks: embedded, path: ".", url: "http://127.0.0.1:1/v1"'),
        [
            "gateway.yaml:5 models.demo.targets[0].url: is a setting of completions or chat or litellm targets, "
            "not of embedded; remove it"
        ],
    ),
    "an embedded model that is not there": (
        gateway(target="speaks: embedded, path: models/tiny"),
        [
            "gateway.yaml:5 models.demo.targets[0].path: no file or folder models/tiny; the path is relative "
            "to the folder of gateway.yaml, and the gateway downloads nothing"
        ],
    ),
    "a scripted model without its script": (
        gateway(target="speaks: scripted"),
        [
            "gateway.yaml:5 models.demo.targets[0].script: is missing; a scripted target needs it. "
            "The script to play, for `scripted`; relative to the file that names it."
        ],
    ),
    "a provider without a model": (
        gateway(template="chat", target="speaks: litellm"),
        [
            "gateway.yaml:5 models.demo.targets[0].model: is missing; a litellm target needs it. "
            "The model's name at the target: `provider/model` for `litellm`; the default for others is the name here."
        ],
    ),
    "messages for a string target": (
        gateway(template="chat"),
        [
            'gateway.yaml:3 models.demo.template: "chat" passes messages unchanged, but `speaks: completions` needs '
            "one string; choose the template with which the model was trained, or write `speaks: chat` at the targets"
        ],
    ),
    "an API template for a string target": (
        gateway(template="api-only"),
        [
            'gateway.yaml:3 models.demo.template: "api-only" makes messages (its roles have api_role), but `speaks: '
            "completions` needs one string; choose the template with which the model was trained, or write `speaks: "
            "chat` at the targets"
        ],
    ),
    "a string template for a message target": (
        gateway(target='speaks: chat, url: "http://127.0.0.1:1/v1"'),
        [
            'gateway.yaml:3 models.demo.template: "plain" makes one string, but `speaks: chat` needs messages; write '
            "`template: chat`, or `speaks: completions` at the targets"
        ],
    ),
    "tools of a prompter for a string target": (
        {
            **gateway(template="equipped"),
            "meta_templates/equipped.yaml": "kind: prompter\nclass: chat\n"
            "default_tools: [{type: function, function: {name: f}}]\n",
        },
        [
            'gateway.yaml:3 models.demo.template: "equipped" has default_tools and no `tools`, so its targets '
            "must accept messages; add `tools: {parser: lazyllm}` to the template, or write `speaks: chat` at the "
            "targets"
        ],
    ),
    "targets of two forms": (
        {
            "gateway.yaml": gateway()["gateway.yaml"] + '      - {speaks: chat, url: "http://127.0.0.1:1/v1"}\n',
        },
        [
            "gateway.yaml:6 models.demo.targets[1].speaks: chat needs messages, but the first target (completions) "
            "needs one string; move this target to another model"
        ],
    ),
    # ---------------------------------------------------------------- secrets and open doors
    "a key in the file": (
        gateway(target='speaks: completions, url: "http://127.0.0.1:1/v1", key: sk-hunter2'),
        [
            'gateway.yaml:5 models.demo.targets[0].key: expected "env:NAME" or "file:PATH"; do not write the secret '
            "itself in this file"
        ],
    ),
    "a key among the options": (
        gateway(template="chat", target="speaks: litellm, model: a/b, options: {api_key: sk-hunter2}"),
        ['gateway.yaml:5 models.demo.targets[0].options: api_key is not an option; set key ("env:NAME") at the target'],
    ),
    "an option that no provider has": (
        gateway(template="chat", target="speaks: litellm, model: a/b, options: {api_versoin: x, temperature: 0}"),
        [
            'gateway.yaml:5 models.demo.targets[0].options: "api_versoin" is not an option of litellm targets (did '
            'you mean "api_version"?); set parameters of calls in the policy, under params',
            'gateway.yaml:5 models.demo.targets[0].options: "temperature" is not an option of litellm targets '
            "(known: api_version, aws_bedrock_runtime_endpoint, aws_profile_name, aws_region_name, aws_role_name, "
            "aws_session_name, extra_body, organization, region_name, safety_settings, thinking, vertex_location, "
            "vertex_project); set parameters of calls in the policy, under params",
        ],
    ),
    "an option of another engine": (
        gateway(target="speaks: embedded, path: play, options: {delay: 1}") | {"play/config.json": "{}"},
        [
            'gateway.yaml:5 models.demo.targets[0].options: "delay" is not an option of embedded targets (did you '
            'mean "token_delay"?); set parameters of calls in the policy, under params'
        ],
    ),
    "options that nothing reads": (
        {**gateway(target="speaks: scripted, script: play.yaml, options: {a: 1}"), "play.yaml": "[]"},
        [
            "gateway.yaml:5 models.demo.targets[0].options: is a setting of litellm or embedded targets, "
            "not of scripted; remove it"
        ],
    ),
    "a BOS of a script": (
        {**gateway(target="speaks: scripted, script: play.yaml, adds_bos: true"), "play.yaml": "[]"},
        [
            "gateway.yaml:5 models.demo.targets[0].adds_bos: is a setting of completions or embedded targets, "
            "not of scripted; remove it"
        ],
    ),
    "a BOS of messages": (
        gateway(template="chat", target='speaks: chat, url: "http://127.0.0.1:1/v1", adds_bos: true'),
        [
            "gateway.yaml:5 models.demo.targets[0].adds_bos: is a setting of completions or embedded targets, "
            "not of chat; remove it"
        ],
    ),
    "a BOS of a provider": (
        gateway(template="chat", target="speaks: litellm, model: a/b, adds_bos: false"),
        [
            "gateway.yaml:5 models.demo.targets[0].adds_bos: is a setting of completions or embedded targets, "
            "not of litellm; remove it"
        ],
    ),
    "a variable that is not set": (
        gateway(target='speaks: completions, url: "http://127.0.0.1:1/v1", key: "env:MY_KEY"'),
        [
            "gateway.yaml:5 models.demo.targets[0].key: the environment variable MY_KEY is not set; set it and start "
            "again"
        ],
    ),
    "a secret file that is empty": (
        {
            **gateway(target='speaks: completions, url: "http://127.0.0.1:1/v1", key: "file:key.txt"'),
            "key.txt": "\n",
        },
        ["gateway.yaml:5 models.demo.targets[0].key: the file key.txt is empty; it must contain only the key"],
    ),
    "open to others without keys": (
        gateway(head="server:\n  host: 0.0.0.0\n  allowed_hosts: [models.example.org]\n"),
        [
            'gateway.yaml:2 server.host: other machines can connect to "0.0.0.0", and there are no client keys; write '
            "`keys: {file: keys.yaml}` (gateway keys new NAME >> keys.yaml), or listen on 127.0.0.1"
        ],
    ),
    "open to others for any host name": (
        gateway(head="server:\n  host: 0.0.0.0\n  insecure_no_keys: true\n"),
        [
            'gateway.yaml:2 server.host: other machines can connect to "0.0.0.0"; write `allowed_hosts: [NAME]` under '
            "server, with the names that clients use for this machine"
        ],
    ),
    "a page's address as its origin": (
        gateway(head='server: {cors: {origins: ["https://chat.example.org/"]}}\n'),
        [
            'gateway.yaml:1 server.cors.origins: "https://chat.example.org/" is not an origin such as '
            "https://chat.example.org or http://localhost:3000; leave out the path and the last slash"
        ],
    ),
    "origins without their section": (
        gateway(head='server: {cors: ["https://chat.example.org"]}\n'),
        ["gateway.yaml:1 server.cors: expected a mapping with the settings origins, such as {origins: …}"],
    ),
    "a host name with a scheme": (
        gateway(head='server: {allowed_hosts: ["https://models.example.org"]}\n'),
        [
            'gateway.yaml:1 server.allowed_hosts: "https://models.example.org" is not a host name such as '
            "example.org or [::1]; remove scheme, port and path"
        ],
    ),
    "the admin listener on the main address": (
        gateway(head='server: {admin: "127.0.0.1:8000"}\n'),
        [
            "gateway.yaml:1 server.admin: is also the address of the main listener; choose another port, or remove "
            "the line"
        ],
    ),
    "the admin listener on the main address, in brackets": (
        gateway(head='server: {host: "::1", admin: "[::1]:8000"}\n'),
        [
            "gateway.yaml:1 server.admin: is also the address of the main listener; choose another port, or remove "
            "the line"
        ],
    ),
    # ---------------------------------------------------------------- client keys
    "a key instead of its digest": (
        keys("ci:\n  sha256: gk_abc123_hunter2\n"),
        [
            "keys.yaml:2 ci.sha256: expected 64 hex digits in quotes, the SHA-256 of the key; "
            "do not write the key itself here (`gateway keys new NAME` makes a key and its entry)"
        ],
    ),
    "a key for a model that is not there": (
        keys(f'ci:\n  sha256: "{DIGEST}"\n  models: [dmo, "qwen-*"]\n'),
        ['keys.yaml:3 ci.models: no model "dmo" (did you mean "demo"?)'],
    ),
    "the same key twice": (
        keys(f'ci:\n  sha256: "{DIGEST}"\nyou:\n  sha256: "{DIGEST}"\n'),
        ['keys.yaml:4 you.sha256: is the same key as "ci"; use a different key for every entry'],
    ),
    "the digest of nothing": (
        keys("ci:\n  sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n"),
        ["keys.yaml:2 ci.sha256: is the SHA-256 of an empty text; write the SHA-256 of the key"],
    ),
    "an end that is no date": (
        keys(f'ci:\n  sha256: "{DIGEST}"\n  expires: 30.06.2027\n'),
        [
            "keys.yaml:3 ci.expires: expected a day such as 2027-06-30, or a time such as 2027-06-30T12:00:00Z, "
            'got the text "30.06.2027"'
        ],
    ),
    "a keys file without keys": (
        keys("# none yet\n"),
        ["keys.yaml: contains no key; add one, or remove keys.file from gateway.yaml"],
    ),
    # ---------------------------------------------------------------- policies
    "a policy that sets the model": (
        policy("params:\n  force: {model: other}\n"),
        ['policies/mine.yaml:2 params.force.model: "model" is not allowed here: set it at the target in gateway.yaml'],
    ),
    "a policy that sets stops": (
        policy('params:\n  default:\n    stop: ["\\n"]\n'),
        ['policies/mine.yaml:3 params.default.stop: "stop" is not allowed here: list it in the template, under stop'],
    ),
    "a bound that is no number": (
        policy("params:\n  clamp: {max_tokens: many}\n"),
        ['policies/mine.yaml:2 params.clamp: the upper bound of "max_tokens" must be a number, got the text "many"'],
    ),
    "forbidding what every call needs": (
        policy("params:\n  forbid: [messages]\n"),
        ['policies/mine.yaml:2 params.forbid: "messages" is not allowed here: every call needs it'],
    ),
    "allowing what no request may set": (
        policy("params:\n  allow: [api_base]\n"),
        ['policies/mine.yaml:2 params.allow: "api_base" is not allowed here: no policy can allow it'],
    ),
    "allowing what is forbidden": (
        policy("params:\n  forbid: [top_k]\n  allow: [top_k]\n"),
        [
            'policies/mine.yaml:3 params.allow: "top_k" is not allowed here: params.forbid lists it too; keep only '
            "one of the two"
        ],
    ),
    "a default that a force hides": (
        policy("params:\n  force: {seed: 1}\n  default: {seed: 2}\n"),
        [
            "policies/mine.yaml:3 params.default.seed: is never used, because params.force sets the same parameter; "
            "keep only one"
        ],
    ),
    "a clock that can never ring": (
        policy("delivery:\n  timeout: {idle: 2m, total: 90s}\n"),
        [
            "policies/mine.yaml:2 delivery.timeout.idle: has no effect, because it is longer than total (90s); make "
            "it shorter"
        ],
    ),
    "a timeout of zero": (
        policy("delivery:\n  timeout: {connect: 0s}\n"),
        ["policies/mine.yaml:2 delivery.timeout.connect: must be more than 0; to use the default, remove the line"],
    ),
    "no attempt at all": (
        policy("delivery:\n  retry: {attempts: 0}\n"),
        ["policies/mine.yaml:2 delivery.retry.attempts: expected a whole number from 1 to 10, got the number 0"],
    ),
    # ---------------------------------------------------------------- templates
    "a template with a misspelled key": (
        {"meta_templates/plain.yaml": TEMPLATE.replace("generate", "generates")},
        [
            "meta_templates/plain.yaml:4 round[1].generates: unknown key 'generates' (did you mean \"generate\"?)",
        ],
    ),
    "a template whose example comes out differently": (
        {
            "meta_templates/plain.yaml": TEMPLATE
            + "examples:\n  - messages: [{role: user, content: hi}]\n    prompt: hi\n"
        },
        [
            "meta_templates/plain.yaml:7 examples[0].prompt: the rendered prompt differs from the example at "
            "position 0\n"
            "  expected 'hi'\n"
            "  got      'Q: hi\\nA: '\n"
            "  there    'hi' became 'Q: hi\\nA: '"
        ],
    ),
    # ---------------------------------------------------------------- YAML itself
    "a tab": (
        {"gateway.yaml": "models:\n\tdemo: {}\n"},
        [
            "gateway.yaml:2: not valid YAML (found character that cannot start any token); indent with spaces, not "
            "tabs; put a value that begins with @, % or ` in quotes"
        ],
    ),
    "a colon in a value": (
        gateway(more="    description: The demo: adds numbers\n"),
        [
            "gateway.yaml:4: not valid YAML (mapping values are not allowed in this context); check the indent and the "
            'blank after each colon, here and in the line above; put a value that contains ": " in quotes'
        ],
    ),
    "a bracket left open": (
        {"gateway.yaml": "models:\n  demo: {template: plain, targets: [\n"},
        [
            "gateway.yaml:2: not valid YAML (did not find expected node content); write a value after the bracket, "
            "or remove an extra comma"
        ],
    ),
    "a merge": (
        gateway(head="server: &s {port: 1}\nkeys: {<<: *s}\n"),
        ['gateway.yaml:2 keys.<<: merge keys ("<<") are not supported; write the keys in full'],
    ),
    "a tag": (
        gateway(head="server: {port: !!str 8000}\n"),
        ['gateway.yaml:1 server.port: YAML tags ("!…") are not supported; write the plain value'],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_with_its_place_and_a_way_out(
    name: str,
    write: Callable[[Mapping[str, str]], Path],
) -> None:
    files, expected = MISTAKES[name]
    with pytest.raises(ConfigError) as caught:
        load(write(files), {})
    assert [str(problem) for problem in caught.value.problems] == expected
    assert "hunter2" not in str(caught.value)


def test_all_problems_of_all_files_come_at_once_in_the_order_of_files_and_lines(
    write: Callable[[Mapping[str, str]], Path],
) -> None:
    files: dict[str, Any] = {
        "gateway.yaml": (
            "server: {port: none}\nkeys: {file: keys.yaml}\nmodels:\n  demo:\n    template: plian\n"
            "    policy: mine\n    targets: [{speaks: completions}]\n  other: {template: chat, targets: []}\n"
        ),
        "keys.yaml": "ci: {}\n",
        "policies/mine.yaml": "params: {unknown: maybe}\nrecord: {}\n",
    }
    with pytest.raises(ConfigError) as caught:
        load(write(files), {"GATEWAY_SERVER__DRAIN": "soon"})
    places = [str(problem).partition(": ")[0] for problem in caught.value.problems]
    assert places == [
        "gateway.yaml:1 server.port",
        "gateway.yaml:5 models.demo.template",
        "gateway.yaml:7 models.demo.targets[0].url",
        "gateway.yaml:8 models.other.targets",
        "keys.yaml:1 ci.sha256",
        "policies/mine.yaml:1 params.unknown",
        "policies/mine.yaml:2 record",
        "environment GATEWAY_SERVER__DRAIN",
    ]
