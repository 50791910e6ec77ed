"""The clients' parts of a data set: images or text, their owners, and their numbers."""
