"""Data of the user's own: what a function named in the experiment gives, as arrays, spread over the clients."""
