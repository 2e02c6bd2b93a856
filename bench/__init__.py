"""Benchmarks of the gateway and its peers on one machine; ``python -m bench --help`` lists the options.

- ``__main__``: the command line; ``scenarios``: what is measured; ``measure``: how each kind of scenario is measured
- ``systems``, ``gateway_variants``, ``install_peers``: the systems under test and how they are started
- ``testbed``, ``processes``: the processes of a run, their CPU time and memory
- ``load``: load generators; ``upstream``: the mock engine; ``rendering``: renders in process; ``report``: the results
- ``workers``, ``call_stages``, ``bulk_run``, ``vllm_server``: separate programs (worker scaling, nanoseconds per stage
  of a call, ``gateway run`` beside wrk, vLLM's own server)
- ``instructions``, ``http_libraries``: instructions of a call, and of calls through HTTP libraries, counted by valgrind
"""
