"""The environment with Ray, in which CI runs test_ray_data.py; ``install`` makes it."""
