"""What outlives a call: cached answers, recordings, and values that several gateways share.

``cache_store``   cached answers in an SQLite database, in memory or in a file
``merging``       merges files of recordings
``open_store``    opens the store that the configuration names
``redis_store``   cached answers on a Redis server
``redis_server``  the server that several gateways share
``recorder``      the thread that writes recordings
``recordings``    reads recordings; ``recordings.sql`` has their tables
``sqlite_file``   opens an SQLite file and measures its size
"""
