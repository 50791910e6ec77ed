"""Comparison of secure aggregation protocols: costs and attacks withstood, under the same conditions."""
