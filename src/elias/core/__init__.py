"""What every chapter uses: errors, settings, files, randomness, metrics, tokenization, and tables trained by row."""
