"""What the clients of an experiment hold and what they are like, before anything is run."""
