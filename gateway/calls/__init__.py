"""The steps of one call.

``service``            answers calls: admits a call, runs its endpoint, and records how the call ended
``endpoints``          the endpoints that run or render a call, and the receiver of their answers
``admission``          the one door: client, body, model and limits of a call
``route``              one configured model, with its template, rules and backend
``stack``              everything that serves one configuration: the routes, the client keys, the limits
``preparation``        the checks and the rendering before a backend is opened
``scoring``            log-likelihoods of candidates
``run``                the call while its backend is open
``fallback``           the same call to another model, after a failure
``answer``             the events that the client receives, and what is added to them
``turns``              the requests of a dialogue with several turns
``explain``            the explanation of a call: prompt, parameters, notices
``timeline``           the times and counts of the call
``tracing``            spans of calls and attempts, if the configuration has an address for them
``python_api``         templates, prompts and answers for Python programs, without a server
"""
