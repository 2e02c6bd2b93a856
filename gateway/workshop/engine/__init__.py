"""``gateway check --live --deep``: what an engine does with a prompt and with the fields of a request.

deep_check   the run: the table of probes, the report as text and JSON
subject      the engine that is checked, its probes, and the answers that several probes share
client       requests to the engine, counted
prompts      the probes of prompts: the token ids that the engine reads
sampling     the probes of parameters, stops and streams
fingerprint  the log probabilities with which two reports are compared
"""
