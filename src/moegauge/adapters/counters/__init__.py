"""Profilers' files, read into one table of launches. Readers by the name a registration gives them."""
