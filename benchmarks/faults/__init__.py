"""Parts of the fault campaign: processes that are struck, studies, people, strikes, checks."""
