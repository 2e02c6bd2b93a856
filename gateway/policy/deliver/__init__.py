"""Delivery layers: backends that add one behaviour to another backend.

``layer``             base classes of a layer
``reasoning_first``   makes two calls if a model reasons before an answer that must be JSON
``recording``         records the events of a call
``cache``             answers a repeated request from a store
``coalescing``        makes one call of equal requests at the same time
``shared_limits``     the attempts and the total time of several exchanges of one call
``split_calls``       sends one call for each choice, if an engine cannot return several choices in one call
``timeouts``          limits the idle time and the total time
``targets``           the choice of a target, retries and failover
``first_token_gate``  waits for the first content
``deadline``          limits the time of tasks with one timer
"""
