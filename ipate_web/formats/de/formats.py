"""German formats: times with “Uhr”. All others are Django's."""

TIME_FORMAT = r"H:i \U\h\r"
DATETIME_FORMAT = r"j. F Y \u\m H:i \U\h\r"
