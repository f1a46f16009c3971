"""Parts of the fault campaign: processes to strike, studies, people, strikes, checks."""
