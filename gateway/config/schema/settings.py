"""All settings, one row each. The code, ``gateway check`` and the documentation use the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, get_args

from gateway.config.schema import kinds
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.schema.kinds import Kind, choice, duration, integer, list_of
from gateway.config.snapshot import Balance, Engine, MarkerAction

GATEWAY: Final = "gateway.yaml"
POLICY: Final = "policies/*.yaml"
KEYS: Final = "keys.yaml"

REQUIRED: Final = "required"


@dataclass(frozen=True, slots=True)
class Row:
    """One setting."""

    file: str
    """The file of the setting: ``gateway.yaml``, ``policies/*.yaml`` or ``keys.yaml``."""
    name: str
    """The dotted path of the setting. ``<name>`` is a name chosen by the user, and ``[]`` is an entry of a list."""
    kind: Kind
    default: Any
    """The default as written in a file. None if there is no default. ``REQUIRED`` if the file must set a value."""
    description: str
    """One sentence about the setting, for the documentation."""

    @property
    def required(self) -> bool:
        """Whether the file must contain this setting."""
        return self.default is REQUIRED

    @property
    def default_value(self) -> Any:
        """The default, converted like a value in a file."""
        return self.default if self.default is None else self.kind.read(self.default)


MARKER_ACTION: Final = choice(*get_args(MarkerAction))

# fmt: off
ROWS: Final[tuple[Row, ...]] = (
    Row(GATEWAY, "server.host", kinds.BIND, "127.0.0.1",
        "The address to listen on; anything but loopback needs client keys and `allowed_hosts`."),
    Row(GATEWAY, "server.port", integer(0, 65535), 8000,
        "The port to listen on; 0 selects any free port."),
    Row(GATEWAY, "server.workers", kinds.WORKERS, 1,
        "The number of processes that serve the port; `auto`: one for each available core."),
    Row(GATEWAY, "server.drain", duration(), "25s",
        "How long running calls may continue after SIGTERM."),
    Row(GATEWAY, "server.drain_notice", duration(), "0s",
        "How long after SIGTERM the gateway still accepts calls while its readiness fails, before it drains."),
    Row(GATEWAY, "server.worker_timeout", duration(positive=True), "30s",
        "How long a worker process may be unresponsive before it is killed and replaced."),
    Row(GATEWAY, "server.max_body", kinds.SIZE, "4MiB",
        "The largest request body that is accepted; a larger body is refused with 413."),
    Row(GATEWAY, "server.max_in_flight", integer(1), 1024,
        "The maximum number of concurrent calls in all workers; further calls are refused with 503 `overloaded`."),
    Row(GATEWAY, "server.max_connections", integer(1), 8192,
        "The maximum number of open connections in all workers; further ones get 503 `overloaded` and are closed."),
    Row(GATEWAY, "server.max_connections_per_client", integer(1), None,
        "The maximum open connections of one IPv4 address or IPv6 /64 network in each worker; a proxy is one client."),
    Row(GATEWAY, "server.allowed_hosts", list_of(kinds.HOST_NAME), [],
        "The accepted names in `Host` headers, besides localhost, 127.0.0.1 and [::1] on loopback; `*`: any."),
    Row(GATEWAY, "server.admin", kinds.LISTENER, None,
        "A second listener for metrics, status and health; without it the main listener serves them, `/metrics` and "
        "`/status` on loopback only."),
    Row(GATEWAY, "server.insecure_no_keys", kinds.SWITCH, False,
        "Serve models without client keys beyond loopback; any client that can connect may use them."),
    Row(GATEWAY, "server.cors.origins", list_of(kinds.ORIGIN), [],
        "The origins whose web pages may call the gateway, such as `https://chat.example.org`; `*`: any."),
    Row(GATEWAY, "server.log_format", choice("text", "json"), "text",
        "The form of the log on standard error; `json`: one object for each line."),
    Row(GATEWAY, "server.tls.certificate", kinds.TEXT, None,
        "A PEM file with the certificate and its chain, relative to this file; with it, the gateway serves HTTPS."),
    Row(GATEWAY, "server.tls.key", kinds.TEXT, None,
        "A PEM file with the certificate's private key, not encrypted."),
    Row(GATEWAY, "server.tls.admin", kinds.SWITCH, False,
        "Serve HTTPS on the admin listener too, with the same certificate."),
    Row(GATEWAY, "models.<name>.template", kinds.TEXT, REQUIRED,
        "The name of a file in `meta_templates/`, or `chat`, which sends messages unchanged."),
    Row(GATEWAY, "models.<name>.policy", kinds.TEXT, "default",
        "The name of a file in `policies/`."),
    Row(GATEWAY, "models.<name>.description", kinds.PROSE, "",
        "A sentence about the model for people, shown by `GET /v1/models`."),
    Row(GATEWAY, "models.<name>.tokenizer", kinds.TEXT, None,
        "A local `tokenizer.json`, or a folder that contains this file."),
    Row(GATEWAY, "models.<name>.max_model_len", integer(1), None,
        "The model's context length in tokens, prompt and answer together."),
    Row(GATEWAY, "models.<name>.fallback", list_of(kinds.TEXT), [],
        "Models that answer, in this order, if all targets of this model fail; the policy must allow it."),
    Row(GATEWAY, "models.<name>.omit", list_of(kinds.TEXT), [],
        "Parameters that the provider refuses; they are left out of every call, with the notice `omitted_parameter`."),
    Row(GATEWAY, "models.<name>.targets[].speaks", choice(*BACKEND_KINDS), REQUIRED,
        f"The kind of backend: {', '.join(f'`{kind.name}` ({kind.summary})' for kind in BACKEND_KINDS.values())}."),
    Row(GATEWAY, "models.<name>.targets[].url", kinds.URL, None,
        "The base address up to and including `/v1`."),
    Row(GATEWAY, "models.<name>.targets[].model", kinds.TEXT, None,
        "The model's name at the target: `provider/model` for `litellm`; the default for others is the name here."),
    Row(GATEWAY, "models.<name>.targets[].engine", choice(*get_args(Engine)), "openai",
        "The engine behind the address, `openai` for any other; it determines "
        "which fields beyond OpenAI's are supported."),
    Row(GATEWAY, "models.<name>.targets[].key", kinds.SECRET, None,
        "The target's API key, as `env:NAME` or `file:PATH`."),
    Row(GATEWAY, "models.<name>.targets[].weight", integer(1, 1000), 1,
        "How often this target is chosen relative to the model's other targets, with `delivery.balance: weighted`."),
    Row(GATEWAY, "models.<name>.targets[].adds_bos", kinds.SWITCH, None,
        "Whether the engine puts a BOS before a string prompt; the default depends on `engine`."),
    Row(GATEWAY, "models.<name>.targets[].path", kinds.TEXT, None,
        "The model's folder, for `embedded`; relative to the file that names it."),
    Row(GATEWAY, "models.<name>.targets[].script", kinds.TEXT, None,
        "The script to play, for `scripted`; relative to the file that names it."),
    Row(GATEWAY, "models.<name>.targets[].options", kinds.MAPPING, {},
        "Further options of an `embedded` or `litellm` target."),
    Row(GATEWAY, "keys.file", kinds.TEXT, None,
        "The file with the client keys, relative to this file; optional on loopback."),
    Row(GATEWAY, "keys.max_in_metrics", integer(0), 50,
        "Metrics name the client key of a call if there are at most this many keys; 0: never."),
    Row(GATEWAY, "store.url", kinds.STORE_URL, None,
        "A Redis or Valkey server with which several gateways share their rate limits, and with `cache.shared` their "
        "cache; without it, each counts alone."),
    Row(GATEWAY, "store.password", kinds.SECRET, None,
        "The server's password, as `env:NAME` or `file:PATH`."),
    Row(GATEWAY, "store.on_failure", choice("allow", "refuse"), "allow",
        "While the server does not answer: `allow`, each process has a share; `refuse`, calls with a rate get 503."),
    Row(GATEWAY, "store.timeout", duration(positive=True), "500ms",
        "How long a call waits for an answer of the server."),
    Row(GATEWAY, "cache.path", kinds.TEXT, None,
        "The SQLite file of the cache, relative to this file; without it, each worker keeps answers in its memory."),
    Row(GATEWAY, "cache.shared", kinds.SWITCH, False,
        "Keep answers on the server of `store.url`; all gateways with this server share the answers."),
    Row(GATEWAY, "cache.max_size", kinds.SIZE, "256MiB",
        "The maximum size of the cache, in memory for each worker; above it, the oldest answers are removed; a Redis "
        "server has its own limit."),
    Row(GATEWAY, "recordings.path", kinds.TEXT, None,
        "The SQLite file for the calls that a policy records, relative to this file."),
    Row(GATEWAY, "recordings.retention", duration(positive=True), "168h",
        "How long a recording is kept."),
    Row(GATEWAY, "recordings.max_size", kinds.SIZE, "1GiB",
        "The maximum size of the file; above it, the oldest recordings are removed."),
    Row(GATEWAY, "redact", list_of(kinds.PATTERN), [],
        "Patterns whose matches are replaced in recordings and in the log: names such as `email`, or `/regex/`."),

    Row(POLICY, "description", kinds.PROSE, "",
        "A sentence about the policy for people."),
    Row(POLICY, "params.force", kinds.MAPPING, {},
        "Parameters that are always sent, and replace those of the client."),
    Row(POLICY, "params.default", kinds.MAPPING, {},
        "Parameters that are sent if the client does not give them."),
    Row(POLICY, "params.clamp", kinds.BOUNDS, {},
        "Upper bounds of parameters; a larger value is lowered to the bound, with a notice."),
    Row(POLICY, "params.forbid", list_of(kinds.TEXT), [],
        "Parameters that are refused with 400 `forbidden_parameter`."),
    Row(POLICY, "params.allow", list_of(kinds.TEXT), [],
        "Fields beyond OpenAI's that are sent regardless of `unknown`; "
        "fields that steer an engine are refused unless they are listed here."),
    Row(POLICY, "params.unknown", choice("forward", "reject", "drop"), "forward",
        "What happens to a parameter that the gateway does not know; a dropped one is named in a notice."),
    Row(POLICY, "params.explicit", kinds.SWITCH, False,
        "Send OpenAI's sampling defaults explicitly, because some engines have other defaults."),
    Row(POLICY, "params.max_tokens", integer(1), 2048,
        "The token limit of a call to a model with a template, if the client sets no limit."),
    Row(POLICY, "media.https", choice("allow", "refuse"), "allow",
        "Whether messages may contain `https` addresses of media; the target fetches them, the gateway does not."),
    Row(POLICY, "media.data", choice("allow", "refuse"), "allow",
        "Whether messages may contain media as `data:` URIs or in base64."),
    Row(POLICY, "media.file", choice("refuse", "pass", "inline"), "refuse",
        "Whether messages may name media files in `media.folders`: `pass`, the target reads the file; `inline`, the "
        "gateway reads it and sends a `data:` URI; a client key needs `allow_media_files`."),
    Row(POLICY, "media.folders", list_of(kinds.TEXT), [],
        "The folders whose files may be named, relative to the folder of `gateway.yaml`; links out of them are "
        "refused."),
    Row(POLICY, "media.max_size", kinds.SIZE, "16MiB",
        "The largest size of all files of a request together."),
    Row(POLICY, "limits.requests_per_minute", integer(1), None,
        "The maximum calls per minute to a model with this policy; further ones get 429 `rate_limit_exceeded`."),
    Row(POLICY, "limits.tokens_per_minute", integer(1), None,
        "The maximum tokens per minute of prompts and answers; estimated when a call begins, corrected when it ends."),
    Row(POLICY, "limits.concurrency", integer(1), None,
        "The maximum concurrent calls to a model, divided among the workers; further calls wait, and keys take turns."),
    Row(POLICY, "limits.queue_wait", duration(), "2s",
        "How long a call above `concurrency` may wait; after this time it is refused with 503 `overloaded`."),
    Row(POLICY, "limits.queue_size", integer(0), 256,
        "The maximum number of calls that wait for a model; further calls are refused with 503 `overloaded`."),
    Row(POLICY, "markers.token_like", MARKER_ACTION, "escape",
        "The action for markers of the template such as `</s>`, and for special tokens, in the texts of a request."),
    Row(POLICY, "markers.text_like", MARKER_ACTION, "escape",
        "The action for markers of the template such as `USER:`, at the beginning of a line in a text of a request."),
    Row(POLICY, "markers.normalize", choice("none", "nfkc"), "none",
        "`nfkc`: also find markers with invisible characters or other forms of letters; changes become refusals."),
    Row(POLICY, "cache.mode", choice("off", "on", "read_only", "write_only"), "off",
        "Whether complete answers are kept and sent again for exactly the same request."),
    Row(POLICY, "cache.ttl", duration(positive=True), "24h",
        "How long an answer in the cache may be used."),
    Row(POLICY, "cache.coalesce", kinds.SWITCH, False,
        "Whether equal requests at the same time make one call, if `temperature` is 0 or a `seed` is given; needs "
        "`mode: on`."),
    Row(POLICY, "record", choice("off", "metadata", "full"), "off",
        "Whether calls are recorded: `metadata` has no text of prompts and answers, `full` has all."),
    Row(POLICY, "delivery.timeout.connect", duration(positive=True), "2s",
        "How long the gateway waits for a connection to the target."),
    Row(POLICY, "delivery.timeout.first_token", duration(positive=True), "60s",
        "How long the first content of a stream may take; without a stream only `total` applies."),
    Row(POLICY, "delivery.timeout.idle", duration(positive=True), "30s",
        "The longest pause between two pieces of content, and the longest time in which a client reads nothing."),
    Row(POLICY, "delivery.timeout.total", duration(positive=True), "600s",
        "How long a call may take, including retries and fallback models."),
    Row(POLICY, "delivery.retry.attempts", integer(1, 10), 3,
        "The maximum number of attempts of a call, over all targets and fallback models; "
        "nothing is retried after the first content."),
    Row(POLICY, "delivery.retry.budget", kinds.PERCENT, "20%",
        "The maximum retries of a model, as a share of its calls in the last 10 s; 3 per second are always allowed."),
    Row(POLICY, "delivery.balance", choice(*get_args(Balance)), "round_robin",
        "The target that a call tries first: `round_robin`, `least_busy`, `weighted` (by the targets' `weight`) or "
        "`sticky` (the same session, cache key, user or prompt prefix at the same target)."),
    Row(POLICY, "delivery.breaker.failures", integer(1, 1000), 5,
        "The number of failures in a row after which calls avoid a target."),
    Row(POLICY, "delivery.breaker.successes", integer(1, 1000), 2,
        "The number of successful probes in a row after which calls use the target again."),
    Row(POLICY, "delivery.breaker.open", duration(positive=True), "30s",
        "How long a failing target is avoided before one call at a time probes it."),
    Row(POLICY, "delivery.breaker.window", duration(positive=True), "60s",
        "The time within which failures are counted; older failures are ignored."),
    Row(POLICY, "delivery.health_check.path", kinds.URL_PATH, None,
        "A path that each target answers while it is healthy, such as `/health`; without it, nothing is checked."),
    Row(POLICY, "delivery.health_check.interval", duration(positive=True), "10s",
        "The time between two health checks of a target."),
    Row(POLICY, "delivery.health_check.timeout", duration(positive=True), "2s",
        "How long a health check may take."),
    Row(POLICY, "delivery.fallback", kinds.SWITCH, False,
        "Whether a model with this policy may name `fallback` models; an answer of another model has a notice."),
    Row(POLICY, "delivery.providers", choice("any", "pinned"), "any",
        "`pinned`: refuse targets of an aggregator, such as OpenRouter, that are not pinned to one provider."),
    Row(POLICY, "delivery.stream_upstream", kinds.SWITCH, False,
        "Request a stream from the target even if the client does not; for engines that generate beyond the stop."),

    Row(KEYS, "<name>.sha256", kinds.DIGEST, REQUIRED,
        "The SHA-256 of the key in hex; `gateway keys new NAME` makes a key and its entry."),
    Row(KEYS, "<name>.models", list_of(kinds.TEXT), ["*"],
        "The models that the key may use; `*` and `?` are wildcards."),
    Row(KEYS, "<name>.record", kinds.SWITCH, True,
        "`false`: calls with this key are never recorded, under any policy."),
    Row(KEYS, "<name>.allow_markers", kinds.SWITCH, False,
        "Send markers of templates in requests with this key unchanged; for evaluations and trusted tools."),
    Row(KEYS, "<name>.allow_media_files", kinds.SWITCH, False,
        "Accept the names of media files in requests with this key, where the policy's `media.file` allows files."),
    Row(KEYS, "<name>.expires", kinds.MOMENT, None,
        "The last day on which the key is valid (in UTC), or the time at which it expires; by default, never."),
    Row(KEYS, "<name>.limits.requests_per_minute", integer(1), None,
        "The maximum calls per minute with this key; further calls are refused with 429 `rate_limit_exceeded`."),
    Row(KEYS, "<name>.limits.tokens_per_minute", integer(1), None,
        "The maximum tokens per minute with this key, counting prompts and answers."),
    Row(KEYS, "<name>.limits.concurrency", integer(1), None,
        "The maximum concurrent calls with this key; further calls are refused with 429 `rate_limit_exceeded`."),
)
# fmt: on

ALIASES: Final = {
    "api_key": "key",
    "api_base": "url",
    "base_url": "url",
    "meta_template": "template",
    "prompt_template": "template",
    "type": "speaks",
    "replicas": "targets",
    "context_length": "max_model_len",
    "retries": "retry",
    "timeouts": "timeout",
    "hash": "sha256",
    "key": "sha256",
}
"""Name of a setting in other tools → name of the same setting in this project, for suggestions."""
