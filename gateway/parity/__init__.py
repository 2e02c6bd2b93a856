"""Do two templates make the same prompt of the same conversation?

``cases``    the conversations: a fixed matrix of names and messages
``sides``    who renders: one of our templates, or anything that can be called
``compare``  both over all cases: a verdict for each, where they part, and in what token
``causes``   what is known to make such a difference, and what to do about it
"""
