"""``gateway run`` and ``gateway with``.

run       the verb ``run``
with      the verb ``with``: a command around which a gateway runs
child     runs the command, with the terminal and the signals of this process
rows      reads DATA.jsonl; each line becomes one request
output    the output file: locked, appended to, and read again to resume
gateways  sends requests to the gateway in this process, or to a running one
ask       sends rows to the gateway, with retries, and makes the output lines
identity  describes a run, so that a later run with other settings is refused
manifest  the manifest: the run's identity, and the summary of the output file
shards    which rows a shard has, and the joined outputs of all shards
ray_data  sends rows from several machines, with Ray Data
"""
