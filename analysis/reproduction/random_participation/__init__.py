"""Tables and figures of Hasircioglu and Gunduz (arXiv 2205.01556)."""
