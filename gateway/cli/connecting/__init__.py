"""The steps of the verbs that talk to a running server.

answer        sends requests to a running gateway, for ``ask`` and ``status``
engine        asks an engine which models it serves, for ``init`` and ``check --live``
first_config  the text of a first ``gateway.yaml``, for ``init``
live_check    checks the targets of a configuration, for ``check --live``
"""
