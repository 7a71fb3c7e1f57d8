"""The network: encoder, index and label classifiers as one; equations (7) and (8), and search for prediction."""
