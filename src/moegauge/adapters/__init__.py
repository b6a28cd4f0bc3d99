"""THE OUTSIDE: trace formats, route files, databases, engines, devices. Nothing else imports what is foreign."""
