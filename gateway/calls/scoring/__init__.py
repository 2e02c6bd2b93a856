"""Log-likelihoods of candidates.

``candidates``     prepares a request for each candidate
``loglikelihood``  sends the requests and computes the scores
"""
