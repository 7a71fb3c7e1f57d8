"""What users hold: a model, an ensemble, their folders on disk, smaller copies."""
