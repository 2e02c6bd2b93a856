"""Metrics and log lines of finished calls.

call_log            the log line of a call
instruments         counters, gauges and histograms
log_writer          writes log lines in a thread
merge               metrics of several processes as one
metric_definitions  the table of metrics
metrics             moves the metrics for each finished call
"""
