"""From a dataset to a model folder: the steps of a run, resumable."""
