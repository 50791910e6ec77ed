"""Statements on batch partition that no paper measures: batches of like reliability, and updates that change."""
