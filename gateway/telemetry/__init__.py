"""Metrics and log lines of finished calls.

attempts            counts and logs the attempts of a call at its targets
call_log            the log line of a call
log_event           the form of a log line: an event and its fields
log_writer          writes log lines in a thread
merge               adds up the metrics of several processes, and writes them for /metrics
metric_definitions  the table of metrics
metrics             updates the metrics for each finished call
record              the record of a finished call
"""
