"""How does a Hugging Face chat template become a prompt, byte for byte as ``transformers`` makes it, and safely?

``environment``  what a template may use, as ``transformers`` gives it
``proof``        which constructs can be bounded where they stand; every other makes a template *confined*
``metering``     where in a template the meter stands, and what a piece of it weighs
``metered``      the same environment with a meter: a render in this process, stopped before it holds anybody up
``methods``, ``filters``, ``operators``  what each step costs there
``worker``       the same environment in a process of its own, which is killed when it takes too long
``variables``    what a template sees of a request
``by_transformers``  the original, to compare with
``trace``        where each piece of a rendered text comes from
"""
