"""Training of a stage: how it starts, the loop, checkpoints, averaged weights."""
