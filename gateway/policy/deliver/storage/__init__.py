"""Storage of cached answers and of recordings.

``cache_store``   cached answers in memory or in an SQLite file
``cache_stores``  the cache stores of one process
``redis_store``   cached answers on a Redis server
``recorder``      the thread that writes recordings
``sqlite_file``   opens an SQLite file and measures its size
"""
