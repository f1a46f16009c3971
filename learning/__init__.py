"""What learns and how it is asked, without Django: mechanisms, representations, learners, students, formats."""
