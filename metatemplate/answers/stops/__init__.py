"""Stop strings: the search for them, and the cut.

``stop_search``      search for stop strings in text that arrives in pieces
``stop_cutter``      cuts events at stop strings
``token_alignment``  positions of tokens in the text
"""
