"""Model broadcast and local training: the protocol between selection and aggregation in a round."""
