"""Mechanisms and models, without Django and without people: representations, learners, students, formats, exports."""
