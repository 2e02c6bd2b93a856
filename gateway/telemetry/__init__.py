"""Metrics and log lines of finished calls.

call_log            the log line of a call
log_writer          writes log lines in a thread
merge               metrics of one or several processes as plain numbers, and as a page
metric_definitions  the table of metrics
metrics             moves the metrics for each finished call
"""
