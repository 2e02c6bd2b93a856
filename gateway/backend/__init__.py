"""Backends: how each kind of target is called. Each kind has one file or package here, and one row in ``kinds``.

kinds         the factory of each kind
engines       the capabilities of each family of engines
openai/       completions, chat: OpenAI-compatible servers
litellm/      litellm: providers with another API
embedded/     embedded: a model computed in this process
scripted      scripted: plays a script, for tests and documentation
replay        replay: answers from a recording
http_client/  the HTTP client of the OpenAI backends
"""
