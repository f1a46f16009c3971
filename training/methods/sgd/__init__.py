"""Private gradient steps: individualized DP-SGD."""
