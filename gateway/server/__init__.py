"""The serving process, alone or with several workers.

application          the gateway as a Starlette application, for other ASGI servers
greeting             the lines printed when the gateway is ready
lifecycle            one process that serves: sockets, an HTTP server, draining
memory               settings of the garbage collector and of malloc
metrics_aggregation  /metrics of several workers
reload               reads the configuration's files, and again when they change
rpc                  requests and responses between supervisor and workers
runtime              the configuration that one process serves
signals              SIGTERM, SIGINT and SIGHUP
sockets              binding, for one process or several
supervisor           starts, reloads and replaces workers
worker               one of several workers
worker_handle        one worker as the supervisor sees it
"""
