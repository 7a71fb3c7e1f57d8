"""The stacked ranker: candidates by words too, features per candidate, a score model learned on held-out rows."""
