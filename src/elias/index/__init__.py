"""The label index: clusters, the learned graph from clusters to labels, and the search through it.

Equations (1) to (6), (9) and (10).
"""
