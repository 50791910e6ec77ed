"""The digits, federated with Flower."""
