"""Metrics and log lines of finished calls.

call_log            the log line of a call
log_writer          writes log lines in a thread
merge               adds up the metrics of several processes, and writes them for /metrics
metric_definitions  the table of metrics
metrics             updates the metrics for each finished call
"""
