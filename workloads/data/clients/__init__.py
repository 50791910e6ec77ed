"""What the clients hold of a data set: images or text, who owns which of them, and how many."""
