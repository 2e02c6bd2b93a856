"""Rules for the content of requests.

``media``           the policy for media in messages (images, audio, video, files)
``media_files``     reads the media files that messages name
``parameters``      the policy for request parameters
``token_markers``   what a tokenizer allows of the policy for markers
"""
