"""The one door for a call: everything that is checked before a call is prepared.

``admit``          checks the client, the body, the model and the limits of a call, in this order
``access``         the client of a request, and the models that it may use
``facts``          what a request brings: its facts, and its body
``trace_context``  the trace to which a request belongs
"""
