"""Spans of calls and of their attempts. OpenTelemetry is imported if the configuration has an address for spans.

tracers                   the tracers of the configurations so far
spans                     makes the spans
conventions               the names and the values of their attributes
exporter                  sends the spans in a thread
"""
