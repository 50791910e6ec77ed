"""Secure aggregation by generation: what each published protocol costs and withstands, under the same conditions."""
