"""Metrics for Prometheus: what keeps the site running, and nothing about the people in its studies."""
