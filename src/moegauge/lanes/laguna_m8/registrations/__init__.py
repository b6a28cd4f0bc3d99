"""The lane as registered for each platform; ``moegauge gate new FOLDER --like`` takes one of the files."""
