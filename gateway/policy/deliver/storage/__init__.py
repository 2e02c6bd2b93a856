"""What outlives a call: kept answers and recordings.

``cache_store``   kept answers, in memory or in an SQLite file
``cache_stores``  the stores of one process
``redis_store``   kept answers on a Redis server
``recorder``      the thread that writes recordings
``sqlite_file``   opening of an SQLite file, and its size
"""
