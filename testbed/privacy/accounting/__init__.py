"""What noise is worth: Renyi divergences and epsilon."""
