"""Commands that people copy to send a first request."""

from __future__ import annotations

import json
import shlex

QUESTION = "1+1=?"
"""What the commands ask; the demo model adds numbers."""


def curl_command(base_url: str, model: str, *, has_keys: bool) -> str:
    """Return a shell command that sends a chat request."""
    key = " -H 'authorization: Bearer YOUR_KEY'" if has_keys else ""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": QUESTION}]})
    return f"curl {base_url}/chat/completions -H 'content-type: application/json'{key} -d {shlex.quote(body)}"


def python_command(base_url: str, model: str, *, has_keys: bool) -> str:
    """Return a Python program that sends a chat request with OpenAI's package."""
    key = "YOUR_KEY" if has_keys else "none"
    messages = json.dumps([{"role": "user", "content": QUESTION}])
    return (
        "from openai import OpenAI\n\n"
        f"client = OpenAI(base_url={json.dumps(base_url)}, api_key={json.dumps(key)})\n"
        f"answer = client.chat.completions.create(model={json.dumps(model)}, messages={messages})\n"
        "print(answer.choices[0].message.content)\n"
    )
