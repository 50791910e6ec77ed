"""PINE (arXiv 2311.10237): two aggregators sum updates with a proven bound on their Euclidean norm."""
