"""Several worker processes.

supervisor     starts, reloads and replaces workers
worker         the process of one worker
worker_handle  the supervisor's object for one worker
rpc            requests and responses between supervisor and workers
"""
