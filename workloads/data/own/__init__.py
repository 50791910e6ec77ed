"""Data of the user's own: the result of a function named in the experiment, as arrays, spread over the clients."""
