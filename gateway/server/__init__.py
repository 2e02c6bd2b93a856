"""The serving processes: a single process, or a supervisor with several workers.

application          the gateway as a Starlette application, for other ASGI servers
greeting             the lines printed when the gateway is ready
lifecycle            runs one serving process, from binding sockets to draining
memory               settings of the garbage collector and of malloc
metrics_aggregation  adds up the metrics of several workers
processes            several worker processes
program              the gateway inside a Python program
reload               reads the configuration files, and reloads them when they change
runtime              the configuration that one process serves
signals              SIGTERM, SIGINT and SIGHUP
sockets              binds sockets, for one process or several workers
tls                  the certificate, and its replacement by a reload
"""
