"""PINE (arXiv 2311.10237): two aggregators sum updates whose Euclidean norm is proven to be bounded."""
