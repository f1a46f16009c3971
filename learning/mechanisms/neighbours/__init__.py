"""Every holder votes: the mechanism, its release, its forecast and its rounds. Nothing here imports Django.

`votes` loads PyTorch, so it is not imported here: forms and pages that only plan do without.
"""
